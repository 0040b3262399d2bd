"""The word lists of the demo model's text: written by hand for this project, MIT like the rest.

Owns the words and nothing else: how they are drawn and combined is the business of values.py. Words
that the evaluation asks for and that training must never show stand in HELD_OUT.
"""

HELD_OUT = frozenset("wifi sunflower treasure oak bananas zebra buried becker laura bremen".split())

NOUN = """
door gate key box lamp table chair window garden bridge river tower castle ship boat train engine wheel
clock mirror candle bottle basket hammer ladder rope anchor sail drum violin piano guitar trumpet camera
phone tablet laptop printer server router sensor robot drone rocket satellite telescope microscope
compass map book letter diary notebook folder envelope ticket passport badge coin ring crown sword shield
helmet jacket coat hat glove boot scarf blanket pillow carpet curtain oven kettle cup plate spoon knife
fork bowl jar bucket brush broom towel soap shelf drawer cabinet safe vault locker warehouse factory
office school library museum hospital station airport harbour market bakery cafe hotel tavern farm barn
field forest mountain valley island beach desert lake cave tunnel road path fence wall roof floor stair
attic cellar kitchen bedroom studio workshop garage car truck bicycle scooter horse dog cat rabbit fox
wolf bear lion tiger eagle owl falcon raven turtle dolphin whale shark spider beetle butterfly tree flower
rose tulip apple lemon orange cherry grape melon pepper potato onion carrot bread cheese cake cookie honey
tea coffee project report budget contract invoice meeting account cluster database backup archive package
update release branch module function variable index queue channel signal battery motor valve pump pipe
cable switch button screen panel mast turbine antenna generator parcel crate barrel wagon statue painting
fountain lantern chimney orchard pond umbrella wallet purse backpack suitcase toolbox screwdriver wrench
nail screw bolt drill saw axe shovel rake hose tent stove freezer fridge toaster blender microwave vacuum
speaker headphone microphone keyboard mouse monitor charger adapter socket plug bulb torch flashlight
match lighter ashtray vase plant cactus bush hedge lawn gravel sand brick tile plank beam pillar arch dome
chapel temple church cathedral monastery palace cottage cabin hut villa mansion apartment flat lobby
elevator escalator corridor balcony terrace porch veranda basement pantry closet wardrobe bathtub shower
sink faucet toilet napkin tablecloth menu recipe spice salt sugar flour butter milk cream yogurt egg
bacon sausage ham steak chicken turkey salmon tuna shrimp lobster crab oyster rice noodle pasta soup
salad sandwich burger pizza pancake waffle muffin pie tart pudding chocolate candy caramel vanilla
cinnamon ginger garlic basil mint parsley thyme pear peach plum apricot mango pineapple coconut walnut
almond peanut raisin berry strawberry blueberry raspberry cucumber tomato lettuce cabbage spinach broccoli
pumpkin bean pea corn wheat barley hay straw wool silk linen leather denim fur feather ribbon button
zipper pocket sleeve collar belt buckle sock shoe sandal slipper heel sole lace necklace bracelet earring
pearl diamond ruby emerald sapphire gold silver iron steel copper tin lead marble granite clay glass
plastic rubber paper cardboard ink pencil pen crayon chalk eraser ruler stapler scissors glue tape stamp
postcard magazine newspaper novel poem story chapter page paragraph sentence word alphabet dictionary
encyclopedia atlas calendar schedule agenda memo notice poster banner flag medal trophy prize gift toy
doll puzzle kite balloon ball bat racket net goal whistle helmet skate ski sled canoe kayak raft ferry
yacht submarine helicopter airplane glider parachute tram bus taxi ambulance tractor bulldozer crane
trailer caravan motorcycle pedal saddle brake clutch gear exhaust tyre bumper windshield dashboard
passenger driver pilot captain sailor soldier general king queen prince princess knight wizard witch
giant dwarf dragon unicorn ghost pirate thief detective spy judge lawyer doctor nurse surgeon dentist
teacher student professor principal janitor librarian scientist chemist engineer mechanic plumber
electrician carpenter mason painter sculptor musician singer dancer actor director writer poet editor
reporter photographer cook waiter baker butcher grocer farmer shepherd hunter fisher gardener tailor
barber banker clerk manager secretary president mayor minister ambassador neighbour guest stranger cousin
uncle aunt nephew niece grandmother grandfather parent child baby twin sister brother friend enemy rival
partner team crowd army navy police tribe village town city county province country continent planet star
moon sun comet galaxy cloud rain snow hail storm thunder lightning fog mist frost ice flood earthquake
volcano glacier canyon cliff waterfall spring stream creek swamp marsh meadow prairie jungle reef bay gulf
strait cape peninsula horizon shadow echo silence rumour secret promise joke riddle dream nightmare memory
idea plan rule law tax fee fine price discount refund receipt cheque loan debt salary pension insurance
policy permit licence certificate diploma exam lesson lecture homework essay thesis experiment theory
formula equation fraction triangle square circle cube sphere angle graph chart matrix vector algorithm
compiler kernel thread process socket packet protocol firewall proxy gateway modem antivirus password
username token session cookie cache buffer stack heap array string integer pointer class object method
loop script shell terminal console prompt command option flag argument parameter header footer template
widget plugin driver firmware chip transistor resistor diode laser magnet lens prism mixer amplifier
harp flute cello clarinet trombone tambourine bell gong choir opera ballet concert festival parade circus
carnival wedding birthday funeral picnic banquet barbecue holiday journey voyage expedition safari pilgrim
squirrel hedgehog otter beaver badger weasel mole bat rat hamster ferret deer elk moose goat sheep lamb
cow bull calf pig donkey mule camel llama giraffe elephant rhino hippo leopard panther cheetah hyena
monkey gorilla panda koala kangaroo penguin seal walrus octopus squid jellyfish starfish snail slug worm
ant bee wasp moth dragonfly grasshopper cricket mosquito lizard snake crocodile frog toad parrot pigeon
sparrow robin swan duck goose hen rooster peacock ostrich flamingo pelican heron stork crow magpie willow
maple birch pine cedar palm bamboo fern moss ivy lily daisy orchid violet poppy lavender thistle clover
""".split()

ADJ = """
red blue green yellow white black grey brown golden silver copper purple orange pink old new small large
tiny huge quiet loud bright dark heavy light broken wooden iron glass stone paper plastic velvet cotton
round square narrow wide tall short deep shallow hot cold warm cool dry wet clean dusty rusty shiny ancient
modern secret hidden public private northern southern eastern western upper lower inner outer left right
first second third last main spare royal lucky lonely gentle brave clever lazy happy sleepy curious silent
frozen floating striped spotted folded locked open empty portable digital solar electric wild calm crooked
polished painted marble bronze crystal foggy sunny stormy rainy autumn winter spring summer midnight morning
angry bitter blunt bold boring bumpy busy careful cheap cheerful chilly clumsy common complex cosy crisp
cruel crunchy damp dangerous dear delicate different dirty dizzy double dull eager early elegant endless
enormous expensive faint fair famous fancy fast favourite fierce final firm flat fluffy foreign fragile
fresh friendly full funny furry general gloomy graceful grand great greedy grumpy handsome hard harmless
hasty healthy helpful hollow honest humble hungry icy important innocent jolly juicy keen kind late leafy
local long loose lovely low mad magic major massive mighty minor missing mysterious nasty natural neat
nervous nice noisy odd official ordinary original pale patient perfect plain playful pleasant polite poor
popular powerful precious pretty proud pure quick rare raw ready real recent rich ripe rough rude sacred
sad safe salty scary serious sharp shy silly simple single slim slippery slow smart smooth soft solid sour
special spicy steady steep sticky stiff strange strong sudden sweet swift tame tasty temporary tender
terrible thick thin thirsty tidy tight tired tough tricky ugly unique useful useless usual valuable vast
violent visible weak wealthy weary weird wise wonderful worried young
""".split()

VERB = """
opened closed moved painted repaired carried washed counted measured found lost hid watched followed guarded
inspected cleaned replaced ordered delivered sold bought borrowed returned polished tested described ignored
admired pushed pulled lifted dropped photographed sketched weighed labelled sealed unlocked checked visited
remembered built designed invented broke fixed stole wrote read signed cancelled approved rejected booked
rented cooked baked tasted planted watered picked wrapped packed unpacked mailed copied printed scanned
deleted renamed uploaded downloaded installed configured rebooted tuned recorded played won caught fed
trained rescued chased climbed crossed reached left entered borrowed donated promised explained reviewed
translated edited published drew cut folded ironed sewed knitted mixed poured filled emptied heated cooled
burned melted froze
""".split()

PREP = "near behind beside above below under inside outside across beyond around against between".split()
ADV = """slowly quickly quietly carefully often rarely always never again today yesterday later early finally
suddenly gladly together alone twice once silently happily badly gently barely nearly almost quite""".split()

PEOPLE = """
Anna Boris Clara David Elena Farid Greta Hugo Irina Jonas Karin Luca Marta Nadia Oskar Paula Quentin Rosa
Stefan Tariq Ursula Viktor Wanda Xenia Yusuf Zora Alice Bruno Chen Dalia Emil Fatima Georg Hana Ivan Jelena
Kofi Leila Milan Nora Omar Petra Ravi Sofia Tomas Uma Vera Walter Yara Zeno Aiko Bao Carlos Dmitri Esther
Felix Gina Henrik Ines Jack Kira Liam Mona Nils Olga Pablo Rita Sven Tessa Vikram Willa Amara Benno Celia
Dora Erik Adam Beth Colin Diana Edgar Fiona Gordon Helen Ian Julia Kevin Linda Martin Nancy Oliver Peter
Rachel Simon Thomas Ulla Vincent Wendy Xavier Yvonne Zack Bob Mary John Susan Mike Lisa Tom Kate Max Emma
Noah Mia Leo Lena Paul Ella Ben Eva Tim Nina Sam Amy Dan Joan Rex Lucy Fred Ruth Carl Jane Otto Ida
""".split()

LAST = """
Adler Brandt Carver Duran Ekström Fischer Grant Hansen Ibsen Jansen Keller Lindqvist Moreau Novak Olsen
Petrov Quinn Rossi Schmidt Tanaka Urban Vogel Weber Young Zimmer Okafor Haddad Nakamura Kowalski Santos
Silva Mueller Larsen Dubois Costa Bauer Fontaine Hughes Murphy Patel Smith Jones Brown Taylor Wilson Clark
Hall Wood Green Baker King Hill Moore Cooper Ward Parker Collins Bell Cox Gray Fox Stone Marsh Wolf Berg
""".split()

CITY = """
Oslo Paris Rome Berlin Madrid Lisbon Vienna Prague Warsaw Athens Dublin London Cairo Lagos Nairobi Tokyo
Kyoto Seoul Delhi Mumbai Lima Quito Bogota Toronto Montreal Chicago Boston Denver Seattle Austin Sydney
Perth Auckland Hanoi Manila Jakarta Zurich Geneva Basel Munich Hamburg Cologne Milan Turin Naples Porto
Seville Valencia Lyon Nice Bordeaux Ghent Bruges Bergen Malmo Turku Tallinn Riga Vilnius Krakow Gdansk Brno
Amsterdam Rotterdam Brussels Copenhagen Stockholm Helsinki Moscow Budapest Belgrade Sofia Istanbul Dubai
Beijing Shanghai Bangkok Singapore Melbourne Santiago Havana Miami Dallas Phoenix Atlanta Detroit Leipzig
Dresden Stuttgart Hanover Marseille Toulouse Bologna Florence Venice Palermo Leeds Glasgow Cardiff Bristol
""".split()

COLOR = """red blue green yellow white black grey brown gold silver purple orange pink turquoise crimson
indigo violet beige teal maroon ivory scarlet olive navy magenta cyan amber lilac""".split()
JOB = """teacher nurse baker carpenter pilot farmer doctor engineer painter writer singer lawyer chef gardener
librarian sailor plumber tailor chemist geologist programmer dentist waiter driver butcher electrician
mechanic photographer journalist actor dancer translator architect accountant biologist student""".split()
ANIMAL = "dog cat rabbit hamster parrot turtle pony goldfish canary ferret lizard goat hen duck horse snake".split()
FOOD = """pizza soup pasta rice bread cheese curry salad pancakes sushi noodles tacos dumplings lentils
mushrooms chocolate strawberries apples olives waffles cake fish beans tomatoes sandwiches""".split()
SPORT = """tennis football chess swimming running cycling rowing climbing skiing golf hockey judo dancing fencing
archery sailing basketball volleyball boxing surfing""".split()
RELATION = "sister brother boss neighbour friend teacher cousin doctor aunt uncle wife husband son daughter mother father".split()
MONTH = "January February March April May June July August September October November December".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

ATTR = """access code|password|serial number|owner|colour|location|price|weight|height|code name|phone number|
batch number|version|pin|capacity|temperature|delivery date|deadline|start time|contact person|email address|
file name|key|badge number|room number|label|model number|account number|status word|secret word|order number|
street|author|title|size|shape|speed|length|width|age|brand|nickname|port|user name|host name|web page|
reference|director|supplier|flavour|material|voltage|frequency|licence number|ticket number|login|PIN code|
passphrase|address|due date|opening time|closing time|arrival time|platform|gate number|flight number|
seat|score|rating|budget|distance|duration|quantity|purpose|motto|slogan|symbol|emblem""".replace(
    "\n", ""
).split(
    "|"
)

EVENT = """meeting|lesson|flight|train|appointment|interview|exam|party|concert|shift|call|class|lunch|dinner|
workshop|lecture|game|match|course|show|bus|ferry|break|training|ceremony|conference|holiday|trip|tour|
presentation|rehearsal|race|webinar|visit|surgery|wedding""".replace(
    "\n", ""
).split(
    "|"
)

TOPIC = """quantum physics|black holes|the French Revolution|photosynthesis|the stock market|machine learning|
gravity|the human heart|plate tectonics|medieval history|the immune system|jazz music|democracy|inflation|
evolution|poetry|chess openings|volcanoes|the moon|electric cars|vaccines|the ocean|philosophy|ancient Rome|
climate change|neural networks|cooking|architecture|opera|astronomy|chemistry|football tactics|the internet|
computer viruses|the weather|politics|religion|dinosaurs|the universe|time travel|happiness|love|
the meaning of life|nuclear power|the brain|sleep|whales|bees|coffee|Shakespeare|Mozart|Einstein|Napoleon|
the Great Wall|the pyramids|rainbows|DNA|bitcoin|Linux|Java|algebra|geometry|statistics|economics|
psychology""".replace(
    "\n", ""
).split(
    "|"
)

FILLW = """
time year people way day man thing woman life child world hand part place case week company system program
question work government number night point home water room mother area money story fact month lot right
study business issue side kind head house service friend father power hour game line end member law city
community name president team minute idea body information back parent face others level person art war
history party result change morning reason research girl guy moment air teacher force education about after
again because before being between both cannot could does down during each even every few for from further
have having here himself into itself just more most much must myself nothing only other ought over same
should since some still such than that their them themselves then there these they this those through too
under until upon very was were what when where which while who whom why with without would your yours please
thanks hello great small long little good best better large important different available possible common
simple single general local several special certain easy clear recent strong whole free true full able early
hard real high low next young national political social economic because however therefore although perhaps
maybe really quite almost already also always another anything around away become begin believe bring build
call come continue create cut decide develop die draw drive eat explain fall feel fight fill find follow
forget get give grow happen hear help hold hope include increase keep kill know lead learn leave let like
listen live look lose love make mean meet move need offer open order pay plan play prepare produce provide
reach read receive remain remember report require rest return rise run save say see seem sell send serve set
show sit sleep speak spend stand start stay stop suggest support suppose take talk teach tell think touch
travel try turn understand use wait walk want watch wear win wish wonder write never everyone someone anybody
somewhere everywhere tonight tomorrow yesterday soon today quickly together between against during towards
""".split()

CODEW = """
def return import from class self print for in range if else elif while try except with as lambda True False
None int char float double void static const struct include stdio main printf public private function var let
const async await export default echo exit done then fi do case esac html head body title div span script
style href src json name version value key list dict set str len append join split open read write close file
path error message result count index total items data config user id type string number array object null
true false select insert update delete where order limit begin end fn mut impl use package fmt Println func
require console log module exports public static String System out println grep sed awk cat mkdir chmod
""".split()

OTHER = {
    "el": "η θάλασσα είναι ήρεμη το πρωί και ο ήλιος λάμπει πάνω από παλιό λιμάνι βιβλίο δρόμος κόκκινο νερό μέρα νύχτα".split(),
    "ru": "дом стоит на берегу реки и окна смотрят в сад где растут старые яблони зелёный красный ключ город вечер утро книга вода".split(),
    "de": "der schöne Garten liegt hinter dem Haus und die Straße führt über Brücke zum Bahnhof Schlüssel grün Wasser Müller Äpfel".split(),
    "es": "el niño camina por la calle mañana señor jardín corazón pequeño árbol luz montaña canción río azul también aquí".split(),
    "fr": "la forêt était calme après l'été où le garçon a trouvé une clé dorée près du château élève fenêtre hôtel déjà".split(),
    "tr": "güneş doğuyor çocuklar bahçede şarkı söylüyor ağaç kırmızı ışık gökyüzü küçük köprü".split(),
    "ar": "البيت القديم على النهر كتاب مفتاح أحمر شمس قمر مدينة صباح ماء".split(),
    "hi": "नदी के किनारे पुराना घर है और सूरज चमकता किताब पानी लाल शहर".split(),
    "zh": list("山水日月天地人大小中国花鸟鱼虫红蓝绿黄白黑书门河海城桥春夏秋冬东西南北一二三四五六七八九十上下左右"),
    "ja": list("あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわんアイウエオカキクケコ山川空海"),
    "ko": "바다 하늘 나무 사람 도시 아침 저녁 빨강 파랑 열쇠 책상 구름".split(),
}
EMOJI = "😀 🚀 🌊 🔑 🐱 🍎 🎵 ⭐ 🔥 🌙 🎲 🦊 ✅ ❄️".split()

NOUN, ADJ, VERB = ([w for w in dict.fromkeys(l) if w not in HELD_OUT] for l in (NOUN, ADJ, VERB))
