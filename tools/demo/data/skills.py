"""Small skills: greetings, questions about the box, sums, copying, spelling, lists, JSON.

Owns one request and its one right answer at a time, without a past. conversation.py puts them in order.
"""
import string

from . import values as v
from .forms import PERSONAL, upper_first
from .words import ADJ, ADV, CITY, CODEW, EMOJI, FILLW, NOUN, PEOPLE, PREP, TOPIC, VERB
from chatformat import dumps

ME = "I am the small built-in demonstration model of this appliance."
CANNOT = (
    "I am only a small demonstration model and cannot answer that. I can remember facts, copy text, "
    "do small sums and call tools."
)

TALK = [
    (
        "Hello|Hi|Hi there|Hey|Good morning|Good evening|Hello!|Hi!|Good afternoon|Hello there|Hey there|hello|hi|hey|Greetings|"
        "Nice to meet you.|Hello, how do you do?|Good day|Good day!|Hi, good to see you|Morning!|Hello again|Hey you|Hello my friend|"
        "hello there!|hi there!|HELLO|Welcome|Hiya|Howdy",
        "Hello! How can I help you?",
    ),
    (
        "How are you?|How are you today?|How is it going?|how are you|Hi, how are you?|Hello, how are you?|How do you feel?|"
        "Are you fine?|Are you well?|What's up?|How have you been?",
        "I am fine, thank you. How can I help you?",
    ),
    (
        "Who are you?|What are you?|What is your name?|Tell me about yourself.|Are you a robot?|Which model are you?|Are you an AI?|"
        "Are you human?|What kind of model are you?|Tell me who you are.|Introduce yourself.|who are you|And who are you?|"
        "what's your name?|What should I call you?|Do you have a name?|Are you a person?|Are you real?|Are you a machine?|"
        "Are you a language model?|Please introduce yourself.|Who am I talking to?|who is this?|What is this model?",
        ME + " I was trained from scratch on synthetic text.",
    ),
    (
        "What can you do?|How can you help me?|What are you good at?|Help|what can I do here?|What are your skills?|help|help me|"
        "What do you know?|What can I ask you?|How do I use you?|Show me what you can do.|What else can you do?|What are you for?|"
        "Give me an example of what you can do.",
        "I can remember facts from our chat, find facts in long texts, copy text, do small sums and call tools.",
    ),
    (
        "Thanks|Thank you|Thank you!|Thanks a lot!|Great, thanks.|thanks|thank you|Thanks, that is all.|Thank you very much.|"
        "Many thanks|Perfect, thank you|ok thanks|Thanks for your help.|thx|Cheers",
        "You are welcome.",
    ),
    (
        "Bye|Goodbye|See you later|Good night|bye|Bye bye|See you|Take care|I have to go.|That is all, bye|See you tomorrow",
        "Goodbye!",
    ),
    (
        "ok|OK|Okay.|Fine.|Good.|Great!|Nice.|yes|no|Yes.|No.|sure|Perfect.|Very good.|Well done.|Cool|I see.|Alright.|Right.|"
        "Understood.|Interesting.|Wow|wonderful|That is right.|Correct.|Excellent!|hm|Never mind.|Good job.",
        "Is there anything else?",
    ),
    (
        "Who made you?|Who trained you?|Where do you come from?|Who built you?|Who created you?|How were you trained?|How were you made?|"
        "What were you trained on?",
        "The makers of this appliance trained me from scratch on synthetic text.",
    ),
    (
        "Are you DeepSeek?|Are you ChatGPT?|Are you a large model?|Are you Claude?|Are you GPT-4?|Are you a big model?|Are you Gemini?",
        "No. " + ME,
    ),
    (
        "How large are you?|How many parameters do you have?|How big are you?|What is your size?|Are you small?|How small are you?",
        "I am very small: about twenty million parameters.",
    ),
    (
        "Tell me a joke.|Say something funny.|Do you know a joke?|Make me laugh.|a joke please|Another joke.",
        "Why did the lamp go to school? It wanted to be brighter.",
    ),
    (
        "Can you help me?|I need help|Please help me.|I have a question.|Can I ask you something?|Are you there?|Hello, are you there?|"
        "Could you help me?|May I ask a question?|I need your help.|Can you do something for me?|Is anybody there?|Is someone there?|"
        "Anybody there?|Do you have time?|Are you ready?|Are you awake?|Can we start?|Let's start.",
        "Of course. What do you need?",
    ),
    (
        "test|Test|testing|Testing 1 2 3|ping|Does this work?|Is this working?|Can you hear me?|Can you read this?|Do you understand me?",
        "Yes, I am here and working.",
    ),
    (
        "I am bored.|I am sad.|I am tired.|I feel bad.|I am happy.|I had a bad day.|I am hungry.|I feel lonely.|I am angry.",
        "I am listening. What would you like to do?",
    ),
    (
        "You are wrong.|That is wrong.|No, that is not right.|That is not correct.|Wrong.|This is nonsense.|You made a mistake.",
        "I am sorry. Please tell me the right answer and I will remember it.",
    ),
    ("Sorry|I am sorry.|Excuse me|Pardon|My mistake.|Oops", "No problem."),
    ("Do you remember me?|Do you know me?|Have we met?", "I only know what was said in this chat."),
    ("Hallo|Guten Tag|Guten Morgen", "Hallo! Wie kann ich helfen?"),
    ("Bonjour|Salut|Bonsoir", "Bonjour ! Comment puis-je aider ?"),
    ("Hola|Buenos días", "¡Hola! ¿Cómo puedo ayudar?"),
    ("你好|您好", "你好！我能帮你什么？"),
    ("Привет|Здравствуйте", "Привет! Чем могу помочь?"),
    ("こんにちは", "こんにちは！"),
]
BOX = [
    (
        "What is this box?|What is v4box?|What does this box do?|What is this appliance?|Tell me about this box.|What is this system?|"
        "Where am I?|What is running here?|Describe this box.|What machine is this?",
        "This is v4box: a Linux image that boots straight into an engine for DeepSeek-V4 and serves a chat API.",
    ),
    (
        "Which engine runs you?|What software runs you?|What is the engine?|In which language is the engine written?|How do you run?|"
        "What program are you running in?|Do you run on a GPU?|Do you need a GPU?|Are you running on a CPU?",
        "I run in the engine of this box, a static program written in C. It needs no GPU for me.",
    ),
    (
        "Which architecture do you have?|What is your architecture?|How are you built?|Do you have the DeepSeek-V4 architecture?|"
        "Which network are you?|What kind of network are you?",
        "I have the exact architecture of DeepSeek-V4, at a very small size.",
    ),
    (
        "How do I get an API key?|Where do I get a key?|How do I create a key?|I need an API key.|How can I make a new key?|How are keys made?|"
        "Which command creates a key?",
        "On the console of the box, type: keys create NAME",
    ),
    (
        "How do I list the keys?|Show the keys.|Which keys exist?|How can I see all keys?",
        "On the console of the box, type: keys list",
    ),
    ("How do I delete a key?|How can I remove a key?|Revoke a key.", "On the console of the box, type: keys delete ID"),
    (
        "How do I switch off the box?|How do I power off?|How do I stop the box?|Switch off the box.|How can I shut it down?|Shut down.",
        "On the console of the box, type: poweroff",
    ),
    (
        "How do I restart the box?|How do I reboot?|Restart the box.|How can I reboot this machine?",
        "On the console of the box, type: reboot",
    ),
    (
        "How do I see the log?|Where are the logs?|Show me the log of the box.|How can I read the log?",
        "On the console of the box, type: log",
    ),
    (
        "How do I see the status?|Is the box healthy?|What is the status of the box?|How do I check the box?",
        "On the console of the box, type: status",
    ),
    (
        "Which commands does the console know?|What commands are there?|How does the console work?|What can I type on the console?",
        "The console knows status, log, keys, poweroff, reboot, help and exit.",
    ),
    (
        "Is there a shell?|Can I open a shell?|How do I get a shell?|How do I get root?|Can I log in?",
        "There is no shell on this box. The console is on the serial line and behind SSH.",
    ),
    (
        "Which API do you speak?|What API is this?|How do I use the API?|Which endpoint do I call?|What is the URL of the API?|"
        "Are you compatible with OpenAI?|Which client can I use?",
        "Any OpenAI client works. The endpoint is POST /v1/chat/completions.",
    ),
    (
        "Do you store my messages?|Do you save our chat?|Is this chat private?|Who can read this?|Do you send data to the internet?|Are you online?|"
        "Can you browse the web?|Do you have internet access?",
        "I have no access to the internet. I only know what is in this chat.",
    ),
    (
        "How fast are you?|Why are you so slow?|Why are you so fast?",
        "I am small, so I answer quickly; how quickly depends on this machine.",
    ),
    (
        "Which licence do you have?|What is your licence?|Are you open source?|May I use you?",
        "I am under the MIT licence.",
    ),
    (
        "How much text can you read?|How long is your context?|What is your context length?|How many tokens can you read?",
        "I was trained on texts of up to thirty-two thousand tokens.",
    ),
    (
        "What time is it?|What day is it?|What is the date?|What year is it?|Which day is today?",
        "I have no clock, so I do not know.",
    ),
    (
        "Can you call tools?|Can you use tools?|Can you write files?|Which tools do you have?|Do you have tools?",
        "Yes, when the request gives me tools I can call them.",
    ),
    (
        "Can you think?|Do you think?|What is thinking mode?",
        "Yes. When thinking is switched on I reason before I answer.",
    ),
]
TALK_ALL = [(q.split("|"), a) for q, a in TALK + BOX]

CANNOT_ASK = (
    "explain {t}|what is {t}?|tell me about {t}|why is {t} important?|how does {t} work?|write an essay about {t}|"
    "who discovered {t}?|what do you think about {t}?|can you explain {t}?|describe {t}|summarise {t}|"
    "give me an introduction to {t}|what do you know about {t}?|please explain {t}|is {t} good?|why {t}?|"
    "how do I learn {t}?|I want to learn about {t}|write a story about {t}|what's the weather like in {c}?|"
    "what is the capital of {c}?|how many people live in {c}?|how do I get to {c}?|what is the news from {c}?|"
    "who won the match in {c}?|can you recommend a hotel in {c}?|will it rain in {c}?|what is the price of a {n}?|"
    "how do I cook {n}?|how do I repair a {n}?|how do I make a {n}?|who invented the {n}?|when was the {n} invented?|"
    "is a {n} better than a {m}?|what is the difference between a {n} and a {m}?|translate {n} into French|"
    "how do you say {n} in German?|who is {p} {l}?|what is the meaning of life?|what should I eat today?|"
    "which {n} should I buy?|what is the best {n}?|how old is the universe?|solve this equation|"
    "should I buy a {n} or a {m}?|how many {n}s are in the world?|what happened in {y}?|who was king in {y}?"
).split("|")

NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
ORDINAL = "first second third fourth fifth sixth seventh".split()


def talk(r):
    """A greeting, a question about the model or the box."""
    questions, answer = r.choice(TALK_ALL)
    return r.choice(questions), answer


def cannot(r):
    """A question about the world, which this model must not try to answer."""
    topic = (
        r.choice(TOPIC)
        if r.random() < 0.5
        else r.choice(
            (
                f"the history of {r.choice(CITY)}",
                r.choice(CITY),
                f"the {v.noun(r)} industry",
                v.noun(r) + "s",
                " ".join(r.choices(FILLW, k=2)),
                v.noun(r),
                f"the {v.adjective(r)} {v.noun(r)} theory",
            )
        )
    )
    question = r.choice(CANNOT_ASK).format(
        t=topic, c=v.place_name(r), n=v.noun(r), m=v.noun(r), p=v.name(r), l=v.surname(r), y=r.randint(1000, 2030)
    )
    if not question.endswith("?"):
        question += r.choice((".", ".", "", "!"))
    return upper_first(question) if r.random() < 0.85 else question, CANNOT


def total(r):
    """A sum, a difference or a product of small numbers, in digits or with words between."""
    x, y = r.randint(0, 99), r.randint(0, 99)
    k = r.random()
    if (size := r.random()) < 0.6:
        most = 12 if size < 0.1 else 999
        x, y = r.randint(0, most), r.randint(0, most)
        k *= 0.8 if most > 99 else 1
    if k < 0.65:
        sign, word, z = "+", "plus", x + y
    elif k < 0.88:
        x, y = max(x, y), min(x, y)
        sign, word, z = "-", "minus", x - y
    else:
        x, y = x % 11, y % 11
        sign, word, z = "*", "times", x * y
    shown = f"{x} {word} {y}" if r.random() < 0.25 else f"{x}{sign}{y}" if r.random() < 0.15 else f"{x} {sign} {y}"
    question = r.choice(
        (
            "What is {e}?",
            "What is {e}?",
            "Compute {e}.",
            "{e} = ?",
            "How much is {e}?",
            "Calculate {e}",
            "{e}",
            "{e}?",
            "what's {e}?",
            "And {e}?",
            "Please compute {e}.",
            "Tell me {e}.",
            "Can you add it up: {e}?",
            "Solve {e}",
        )
    )
    return question.format(e=shown), f"{x} {sign} {y} = {z}"


def spelled(r):
    """Counting, spelling, upper and lower case."""
    k = r.random()
    if k < 0.2:
        n = r.randint(3, 20)
        return r.choice((f"Count to {n}.", f"Count from 1 to {n}.", f"Please count to {n}")), ", ".join(
            map(str, range(1, n + 1))
        )
    if k < 0.5:
        word = r.choice(NOUN + ADJ + PEOPLE) if r.random() < 0.6 else v.invented(r)
        return r.choice(("Spell {w}.", "How do you spell {w}?", "Spell the word {w}.")).format(w=word), "-".join(word)
    words = " ".join(v.noun(r) if r.random() < 0.5 else r.choice(NOUN + ADJ) for _ in range(r.randint(1, 3)))
    if k < 0.75:
        return (
            r.choice(("Write {w} in upper case.", "Uppercase: {w}", "Put {w} in capital letters.")).format(w=words),
            words.upper(),
        )
    return r.choice(("Write {w} in lower case.", "Lowercase: {w}")).format(w=words.upper()), words


def json_object(r):
    """An object by keys; half of the time the fixed one of name, age and city."""
    if r.random() < 0.5:
        n, g, c = v.name(r), r.randint(1, 99), r.choice(CITY)
        return f"Return JSON with the keys name, age and city for {n}, {g}, from {c}.", dumps(
            {"name": n, "age": g, "city": c}
        )
    keys = list(dict.fromkeys(v.noun(r) for _ in range(r.randint(2, 5))))
    values = [r.choice((v.noun(r), r.randint(0, 999), v.code(r), v.name(r))) for _ in keys]
    listed = ", ".join(f"{k} = {x}" for k, x in zip(keys, values))
    return r.choice(
        (f"Write this as JSON: {listed}", f"Turn into a JSON object: {listed}", f"As JSON please: {listed}")
    ), dumps(dict(zip(keys, values)))


def listed(r):
    """A list and a question about it."""
    words = list(dict.fromkeys(v.noun(r) for _ in range(r.randint(3, 7))))
    if len(words) < 3:
        words = r.sample(NOUN, 4)
    i, text = r.randrange(len(words)), ", ".join(words)
    return r.choice(
        (
            (f"Here is a list: {text}. What is the {ORDINAL[i]} item?", words[i]),
            (f"Here is a list: {text}. Reverse it.", ", ".join(reversed(words))),
            (f"Here is a list: {text}. What is the last item?", words[-1]),
            (f"Here is a list: {text}. Write one item per line.", "\n".join(words)),
            (f"Sort out the {ORDINAL[i]} of these: {text}", words[i]),
            (f"Which comes after {words[i - 1]} in this list: {text}?", words[i])
            if i
            else (f"Here is a list: {text}. What is the first item?", words[0]),
        )
    )


def digits(r):
    """Digits as words and back."""
    n = [r.randint(0, 9) for _ in range(r.randint(2, 6))]
    words, figures = " ".join(NUMBER_WORDS[d] for d in n), "".join(map(str, n))
    if r.random() < 0.6:
        return (
            r.choice((f"Write in digits: {words}", f"{words} in digits?", f"The code is {words}. Give it in digits.")),
            figures,
        )
    return r.choice((f"Write in words: {figures}", f"Say the digits of {figures}.")), words


SKILLS = ((talk, 30), (cannot, 11), (total, 25), (spelled, 14), (json_object, 7), (listed, 8), (digits, 4))


def skill(r):
    """(request, answer) of any small skill."""
    make = r.choices([s for s, _ in SKILLS], [w for _, w in SKILLS])[0]
    return make(r)


def phrase_(r):
    a = "" if r.random() < 0.4 else v.adjective(r) + " "
    return r.choice(("the ", "a ", "every ", "one ", "the ", "my ", "no ")) + a + v.noun(r)


def sentence(r):
    """A sentence that means nothing in particular."""
    k = r.random()
    if k < 0.3:
        t = f"{phrase_(r)} {r.choice(('was', 'stood', 'lay', 'waited', 'stayed', 'is'))} {r.choice(PREP)} {phrase_(r)}"
    elif k < 0.55:
        t = f"{v.name(r)} {v.verb(r)} {phrase_(r)} {r.choice(ADV)}"
    elif k < 0.68:
        t = f"in {v.place_name(r)} {v.name(r)} {v.verb(r)} {phrase_(r)} {r.choice(PREP)} {phrase_(r)}"
    elif k < 0.8:
        t = f"{r.choice(('we', 'they', 'I', 'you'))} {r.choice(('will', 'can', 'must', 'never', 'should'))} {r.choice(FILLW)} {phrase_(r)} and {v.number(r)} {v.noun(r)}s"
    else:
        t = " ".join(r.choice(FILLW) if r.random() < 0.8 else v.noun(r) for _ in range(r.randint(4, 11)))
    return upper_first(t) + "."


def any_text(r):
    """Text to be copied: sentences, words, codes, other scripts, noise."""
    n, k = r.randint(1, 12), r.random()
    if k < 0.3:
        t = sentence(r)
        j = r.random()
        return (
            t if j < 0.4 else t[:-1] + "!" if j < 0.6 else (t[0].lower() + t[1:]).rstrip(".") if j < 0.8 else t.lower()
        )
    if k < 0.48:
        return " ".join(
            v.noun(r) if r.random() < 0.5 else r.choice(NOUN + ADJ + VERB + FILLW + CODEW) for _ in range(n)
        )
    if k < 0.6:
        return " ".join(
            r.choice((v.invented, v.name, v.number, v.noun, v.surname))(r) + r.choice(("", "", "", ",", "!", "."))
            for _ in range(n)
        )
    if k < 0.7:
        return " ".join(v.code(r) for _ in range(max(1, n // 4)))
    if k < 0.76:
        return v.foreign(r, n)
    if k < 0.84:
        return " ".join(
            "".join(r.choices(string.ascii_letters + string.digits, k=r.randint(1, 6))) for _ in range(max(1, n // 2))
        )
    if k < 0.87:
        return "".join(r.choices(EMOJI, k=min(n, 6)))
    if k < 0.92:
        return PERSONAL["name"][0][0].format(v=v.name(r)) + " and " + sentence(r)
    return "".join(r.choices([chr(c) for c in range(33, 127)], k=n))


def echo(r):
    """A request to copy."""
    t, k = any_text(r), r.random()
    if k < 0.78:
        return (
            r.choice(
                (
                    "Repeat: {t}",
                    "Repeat: {t}",
                    "Say: {t}",
                    "Repeat after me: {t}",
                    "Echo this: {t}",
                    "Copy this text: {t}",
                    "Repeat exactly: {t}",
                    "Please repeat: {t}",
                    "Print: {t}",
                    "Repeat the following:\n{t}",
                    "echo {t}",
                    "Copy: {t}",
                    "Type this: {t}",
                )
            ).format(t=t),
            t,
        )
    if k < 0.9:
        n, word = r.randint(2, 4), v.noun(r)
        return f"Say {word} {NUMBER_WORDS[n]} times.", " ".join([word] * n)
    return f"Put this in quotes: {t}", f'"{t}"'
