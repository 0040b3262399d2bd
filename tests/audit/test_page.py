"""`make test-report`: the page of a report in a real browser, which loads it from a file and is watched over its own
debugging pipe: no error, no load but the page itself, cells of the heat maps with the colours of their numbers, and a
screenshot that is not blank."""
import base64, json, os, shutil, subprocess, sys, tempfile, zlib

from harness import DEMO, ROOT, Tap, audit, planted

BROWSER = shutil.which("chromium-headless-shell")
PICTURE = os.path.join(ROOT, "build/audit/report.png")
SECONDS = 120  # of one answer of the browser

COUNTS = """(() => {
    const cells = [...document.querySelectorAll("td.heat")];
    return {
        title: document.querySelector("h1").innerText, text: document.querySelector("pre").innerText,
        verdict: getComputedStyle(document.querySelector("h1 span")).backgroundColor, sections: document.querySelectorAll("section").length,
        scripts: document.scripts.length, curves: document.querySelectorAll("svg path").length,
        spans: [...document.querySelectorAll("h3 span")].map(span => getComputedStyle(span).backgroundColor),
        cells: cells.map(cell => ({text: cell.innerText, colour: getComputedStyle(cell).backgroundColor,
                                   seen: cell.getBoundingClientRect().width > 0})),
        wide: document.documentElement.scrollWidth, injected: window.injected === true,
    };
})()"""


class Browser:
    """Chromium without windows, spoken to over two pipes (Chrome DevTools Protocol)."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def descriptors():  # where --remote-debugging-pipe looks for them
            os.dup2(to_read, 103), os.dup2(back_write, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        self.process = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--user-data-dir={folder}", "--window-size=1000,1400", "about:blank"],
            preexec_fn=descriptors, pass_fds=(3, 4, to_read, back_write), stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(back_write)
        self.n, self.events, self.rest, self.session = 0, [], b"", None

    def message(self):
        while b"\0" not in self.rest:
            data = os.read(self.back, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self.rest += data
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.n += 1
        request = {"id": self.n, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.n:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, path):
        """-> what the page shows, and the events of its loading"""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.events = []
        self.call("Page.navigate", url="file://" + path)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())
        shown = self.call("Runtime.evaluate", expression=COUNTS, returnByValue=True)["result"]["value"]
        return shown, self.events

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=SECONDS)


def trouble(events):
    """Errors, and addresses other than the page's own that were asked for."""
    errors = [e["params"] for e in events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return errors, [url for url in asked[1:] if not url.endswith("favicon.ico")]


def colours(picture):
    """How many different rows of pixels a PNG has: 1 is a blank page."""
    data, at = b"", 8
    while at < len(picture):
        size, kind = int.from_bytes(picture[at:at + 4], "big"), picture[at + 4:at + 8]
        data += picture[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    raw, width = zlib.decompress(data), int.from_bytes(picture[16:20], "big")
    line = 1 + width * {2: 3, 6: 4}[picture[25]]
    return len({raw[i + 1:i + line] for i in range(0, len(raw), line)})


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="v4box-page-") as folder:
        page, data = os.path.join(folder, "report.html"), os.path.join(folder, "report.json")
        audit("all", "--model", DEMO, "--budget", "quick", "--profile", "fast", "--context", "1024", "--html", page,
              "--json", data)
        report = json.load(open(data))
        browser = Browser(os.path.join(folder, "profile"))
        shown, events = browser.open(page)
        errors, loads = trouble(events)
        tap.check(not errors and not loads and shown["scripts"] == 0, f"no error, no load, no script: {errors} {loads}")
        tap.check(shown["title"] == f"v4box audit: {report['verdict']}" and
                  shown["sections"] == len(report["tests"]) == 9, f"every test is shown under {shown['title']!r}")
        cells = [f"{cell['right']}/{cell['n']}" for test in report["tests"] for grid in test.get("grids", [])
                 for line in grid["lines"] for cell in line["cells"] if cell["n"] > 0]
        tap.check(len(cells) >= 10 and [cell["text"] for cell in shown["cells"]] == cells and
                  all(cell["seen"] for cell in shown["cells"]), f"{len(cells)} cells of the heat maps are drawn")
        by_text = {cell["text"]: cell["colour"] for cell in shown["cells"]}
        tap.check(all(colour not in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)") for colour in by_text.values()),
                  f"each in a colour: {by_text}")
        tap.check(shown["curves"] == 1 and len(set(shown["spans"])) >= 1, "KL by position is a curve")
        picture = browser.picture()
        open(PICTURE, "wb").write(picture)
        tap.check(colours(picture) > 100, f"the picture has {colours(picture)} different lines: {PICTURE}")
        # A row that does nothing: whatever its tests say, the page says that nothing rests on it.
        lost = planted("clamp never reached, shown", ("kernels/cpu/cpu_experts.c", "(float)p->limit,", "1e30f,"))
        unproven = os.path.join(folder, "unproven.html")
        audit("floor", "--model", DEMO, "--budget", "quick", "--profile", "official", "--context", "1024", "--html", unproven,
              engine=lost)
        passed, shown = shown, browser.open(unproven)[0]
        tap.check(shown["title"] == "v4box audit: INVALID" and "rows that no verdict may rest on" in shown["text"] and
                  "moe.clamp = on" in shown["text"] and shown["verdict"] not in shown["spans"][1:] + [passed["verdict"]],
                  f"an unproven row makes the page {shown['title']!r}, in {shown['verdict']}")
        # Controls: a lost answer has another colour, and what loads or throws is seen.
        other = os.path.join(folder, "other.html")
        text = open(page).read()
        bad = text.replace("hsl(120 70% 85%)", "hsl(0 70% 70%)", 1)
        open(other, "w").write(bad.replace("</h1>", '</h1><img src="file:///nowhere.png"><script>window.injected = true;'
                                           "throw Error('x')</script>", 1))
        shown, events = browser.open(other)
        errors, loads = trouble(events)
        tap.check(errors and loads and shown["injected"] and shown["scripts"] == 1, "control: a load and a throw are seen")
        tap.check(len({cell["colour"] for cell in shown["cells"]}) == len(set(by_text.values())) + 1,
                  "control: a lost answer has another colour")
        browser.close()
    return tap.end()


sys.exit(main())
