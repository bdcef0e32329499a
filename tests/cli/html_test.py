"""Tests the HTML figure in a real browser. Hovering names an instruction with its times and inputs, the wheel zooms
at the pointer, and a drag pans. A plan of 32 x 256 opens, and the page fetches nothing. The test needs a Chromium.
Without it the test is skipped and prints the reason."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)
REASON = "none of " + ", ".join(BROWSERS) + " is installed: the HTML picture was not opened in a browser"
if BROWSER is None:
    print("skipped:", REASON)


class Browser:
    """A headless Chromium, controlled over two pipes (Chrome DevTools protocol; messages end with a zero byte)."""

    def __init__(self, folder: str) -> None:
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def wire() -> None:  # The browser reads file descriptor 3 and writes 4.
            spare = os.dup(to_read), os.dup(to_write)
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self.process = subprocess.Popen(
            [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder}",
             "--remote-debugging-pipe", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.count = 0
        self.session: dict[str, str] = {}
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")
        self.call("Network.enable")
        self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)

    def receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser did not answer in time")
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        request = {"id": self.count, "method": method, "params": params, **self.session}
        os.write(self.to, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + 120
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, path: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 120
        while not self.value("document.readyState === 'complete' && Boolean(window.hetu)"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} did not open: {self.events}")
            time.sleep(0.1)

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)


# Keeps the text and the place of each text on the canvas.
RECORD_TEXTS = """
var drawnTexts = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function(text, x, y) {
  const width = this.measureText(text).width;
  const from = x - {left: 0, center: width / 2, right: width}[this.textAlign];
  drawnTexts.push({text, y, from, to: from + width});
  fill.call(this, text, x, y);
};
"""


@unittest.skipIf(BROWSER is None, REASON)
class HtmlPicture(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = Browser(cls.folder.name + "/profile")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()
        cls.folder.cleanup()

    def picture(self, arguments: str, status: int = 0) -> Path:
        path = Path(self.folder.name) / "picture.html"
        words = ["hetu", *arguments.split(), "-o", str(path)]
        done = subprocess.run(words, cwd=self.folder.name, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        self.browser.open(path)
        return path

    def place(self, cell: str, worker: int, row_set: int = 0) -> tuple[float, float]:
        at = self.browser.value(f"(i => i < 0 ? null : hetu.at({row_set}, i))(hetu.find({row_set}, {worker}, '{cell}'))")
        self.assertIsNotNone(at, f"{cell} of worker {worker} is not in the picture")
        return at["x"], at["y"]

    def card(self) -> str:
        text = self.browser.value("(c => c.style.display === 'block' ? c.innerText : '')(document.getElementById('card'))")
        return str(text)

    def test_hover_names_the_instruction_with_its_times_and_inputs(self) -> None:
        self.picture("simulate 1f1b --stages 4 --micro-batches 8 --latency 0.5 --format html")
        self.browser.mouse("mouseMoved", *self.place("2B0", 2))
        card = self.card().split("\n")
        self.assertEqual(card[0], "2B0 backward")
        self.assertEqual(card[1], "worker 2, stage 2, micro-batch 0, step 0")
        # F 1, B 2, latency 0.5: 3F0 starts at 4.5, 3B0 ends at 7.5, and its gradient arrives half a unit later.
        self.assertEqual(card[2], "8 to 10 units, takes 2 units")
        self.assertIn("2F0 of worker 2, 3 to 4 units", card)
        self.assertTrue(any(line.startswith("3SEND_B0 of worker 3") for line in card), card)
        self.browser.mouse("mouseMoved", 3, 3)
        self.assertEqual(self.card(), "")

    def test_the_wheel_zooms_at_the_pointer_and_a_drag_pans(self) -> None:
        self.picture("simulate 1f1b --stages 4 --micro-batches 8 --format html")
        whole = self.browser.value("hetu.view()")
        x, y = self.place("0B3", 0)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
        near = self.browser.value("hetu.view()")
        self.assertLess(near["to"] - near["from"], 0.6 * (whole["to"] - whole["from"]))
        self.assertAlmostEqual(self.place("0B3", 0)[0], x, delta=1)
        self.browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.browser.mouse("mouseMoved", x + 60, y, button="left", buttons=1)
        self.browser.mouse("mouseReleased", x + 60, y, button="left", clickCount=1)
        self.assertAlmostEqual(self.place("0B3", 0)[0], x + 60, delta=1)
        self.browser.value("document.getElementById('all').click()")
        self.assertEqual(self.browser.value("hetu.view()"), {"from": 0, "to": whole["to"]})

    def test_texts_stand_apart_on_a_phone_and_on_a_wide_page(self) -> None:
        self.picture("simulate zb-h1 --stages 4 --micro-batches 8 --format html")
        self.browser.value(RECORD_TEXTS)
        self.addCleanup(self.resize, 1400)
        for width in (390, 1000):
            self.resize(width)
            texts = self.browser.value("drawnTexts.splice(0)")
            self.assertTrue([text for text in texts if text["text"].startswith("makespan 27 units")], texts)
            for text in texts:
                for other in texts:
                    if text["text"] != other["text"] and abs(text["y"] - other["y"]) < 8:
                        apart = text["to"] <= other["from"] or other["to"] <= text["from"]
                        self.assertTrue(apart, f"{width} pixels wide: {text} overlaps {other}")

    def resize(self, width: int) -> None:
        """Changes the width of the page, and waits until it is drawn again."""
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        deadline = time.monotonic() + 120
        while not self.browser.value(f"innerWidth === {width} && drawnTexts.length > 0"):
            self.assertLess(time.monotonic(), deadline, "the page was not drawn again")
            time.sleep(0.1)

    def test_two_traces_stand_below_each_other_in_light_and_dark(self) -> None:
        for name, method in (("a", "zb-v"), ("b", "chimera")):
            words = f"simulate {method} --stages 4 --micro-batches 8 --format trace -o {name}.json".split()
            subprocess.run(["hetu", *words], cwd=self.folder.name, check=True)
        path = self.picture("timeline a.json b.json")
        upper, lower = self.place("0F0", 0), self.place("0F0", 0, 1)
        self.assertAlmostEqual(upper[0], lower[0], delta=40)
        self.assertGreater(lower[1], upper[1] + 80)
        self.browser.mouse("mouseMoved", *lower)
        self.assertIn("0F0 forward", self.card())
        papers = set()
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.browser.open(path)
            papers.add(self.browser.value("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(papers), 2, papers)

    def test_a_plan_of_32_by_256_opens_and_fetches_nothing(self) -> None:
        path = self.picture("simulate 1f1b --stages 32 --micro-batches 256 --format html")
        x, y = self.place("16B100", 16)
        for _ in range(5):
            self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
        self.browser.mouse("mouseMoved", *self.place("16B100", 16))
        self.assertIn("16B100 backward", self.card())
        asked = [e["params"]["request"]["url"] for e in self.browser.events if e["method"] == "Network.requestWillBeSent"]
        self.assertEqual(set(asked), {path.as_uri()})
        wrong = [e for e in self.browser.events if e["method"] == "Runtime.exceptionThrown"]
        self.assertEqual(wrong, [])

    def test_a_refused_plan_names_the_marked_places(self) -> None:
        (Path(self.folder.name) / "cycle.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
        self.picture("schedule cycle.csv --format html", status=1)
        marks = self.browser.value("document.getElementById('marks').innerText").split("\n")
        self.assertTrue(any("is at cell 2: 0B0 waits for 1B0" in line for line in marks), marks)


if __name__ == "__main__":
    unittest.main()
