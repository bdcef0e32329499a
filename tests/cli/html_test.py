"""Tests the HTML figure in a real browser. Hovering names an instruction with its times and inputs, the wheel zooms
at the pointer, and a drag pans. A plan of 32 x 256 opens, and the page fetches nothing. The test needs a Chromium.
Without it the test is skipped and prints the reason."""

import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from browser import BROWSER, REASON, Browser

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
    unittest.main(verbosity=2)
