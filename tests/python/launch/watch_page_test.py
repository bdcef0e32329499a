"""The page of heturun watch in a real browser, with a real job of two workers of which one is slowed: its numbers are those
of heturun ps and of the log. Needs a Chromium; without it the tests are skipped and print the reason."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import unittest

from browser import BROWSER, REASON, Browser
from hetu.launch import history, watch, watched
from jobs_test import HETURUN, MANY_S, JobCase
from processes import wait_until

MOST_S = 200.0
# Two pipelines of one stage; worker 1 computes each instruction four times as long.
SCRIPT = """
import sys
import time
import numpy as np
import hetu as ht
from hetu.averaging import Stragglers
x = np.random.default_rng(0).standard_normal((256, 64))
data = ht.data.Arrays(x=x, y=x[:, 0] > 0, batch_size=64, seed=1)
h = ht.nn.Linear(64, 256).named("first")(data.x)
loss = ht.models.mean_cross_entropy(ht.nn.Linear(256, 2).named("last")(ht.ops.tanh(h)), data.y, "loss")
job = ht.Executor({"train": [loss, ht.optim.SGD(1e-2).minimize(loss)]}, micro_batches=4, devices="pipe_2_1",
                  stragglers=Stragglers(slow=[{"worker": 1, "factor": 4}]))
for step in job.run("train", until=10**6, checkpoint="saved", every=20, resume=True, hooks=[ht.hooks.Progress(10**6)],
                    trace="trace.json"):
    time.sleep(0.05)
    if job.is_chief and step.done % 20 == 0:
        print("did", step.done, flush=True)
"""
# The texts of the page, read at one time.
READ = """(() => {
  const of = id => document.getElementById(id).textContent;
  return {title: document.title, job: of("job"), state: of("state"), kind: document.getElementById("state").className,
    command: of("command"), step: of("step"), loss: of("loss"), rate: of("rate"), checkpoint: of("checkpoint"),
    label: document.getElementById("curve").getAttribute("aria-label"), at: of("curve-at"),
    log: [...document.querySelectorAll("#lines div")].map(line => line.textContent).join("\\n"),
    connection: of("connection"), note: of("timeline-note"), failure: of("failure"),
    isFailure: !document.getElementById("failure").hidden,
    messages: [...document.querySelectorAll("#messages li")].map(line => line.textContent),
    workers: [...document.querySelectorAll("#workers tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
    bad: [...document.querySelectorAll("#workers tbody tr.bad")].map(row => row.cells[0].textContent)};
})()"""


class PageCase(JobCase):
    def setUp(self):
        super().setUp()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(self.profile.cleanup)
        self.browser = Browser(self.profile.name)
        self.addCleanup(self.browser.close)

    def open(self, path):
        self.server = watch.Server(watched.Watched(path), 0)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.addCleanup(self.close_server)
        self.browser.open(self.server.address(), ready="asked > 0")

    def close_server(self):
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()

    def page(self):
        return self.browser.value(READ)

    def next_page(self):
        """Returns the texts after another round of questions."""
        self.browser.value("window.before = asked")
        self.browser.wait("asked > before + 1")
        return self.page()

    def check_nothing_failed(self):
        for event in self.browser.events:
            self.assertNotIn(event.get("method"), ("Runtime.exceptionThrown", "Log.entryAdded"), event)
            self.assertFalse(event.get("method") == "Runtime.consoleAPICalled", event)


@unittest.skipIf(BROWSER is None, REASON)
class RealJob(PageCase):
    def test_shows_what_ps_and_the_logs_say(self):
        pathlib.Path(self.folder, "slow.py").write_text(SCRIPT)
        path = os.path.join(self.folder, "run")
        said = pathlib.Path(path, "heturun.log")
        process = subprocess.Popen([*HETURUN, "-w", "2", "--slow-limit", "2", "--run-dir", path, "python3", "slow.py"],
                                   env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        self.assertTrue(wait_until(lambda: said.exists() and " is slow: " in said.read_text(), MOST_S))
        self.open(path)
        self.check_against_ps(path)
        page = self.next_page()
        self.assertEqual(page["command"], "python3 slow.py")
        self.assertRegex(page["checkpoint"], r"^step \d*[02468]0$")
        self.assertRegex("\n".join(page["messages"]), r"worker 1 \(\S+, pid \d+\) is slow: it computes ")
        self.assertRegex(page["label"], r"^Curve of the loss, from [\d.]+ at step 1 to [\d.]+ at step [\d,]+; the least is ")
        self.assertRegex(page["note"], "^This job records no trace")
        self.check_log(path)
        self.check_hidden()
        self.heturun("stop", "run")
        self.browser.wait("!state.alive")
        self.browser.wait("!document.getElementById('frame').hidden")
        page = self.page()
        self.assertEqual((page["state"], page["kind"], page["isFailure"]), ("finished", "badge done", False))
        self.assertRegex(page["note"], rf"^From {self.folder}/trace\.json\. ")
        self.assertGreater(self.browser.value("document.getElementById('timeline').naturalWidth"), 500)
        self.check_curve(path)
        self.check_nothing_failed()
        self.close_server()
        self.browser.wait("document.body.classList.contains('lost')")
        self.assertRegex(self.page()["connection"],
                         r"^No answer from heturun watch since \d\d:\d\d:\d\d; what you see is of before\.$")

    def check_against_ps(self, path):
        """The page shows the rows of heturun ps. heturun is stopped meanwhile, so that it writes no new state."""
        def both():
            out = self.heturun("ps", path)[0].splitlines()
            page = self.page()
            cells = re.split(r" {2,}", out[1])
            if cells[2] != page["step"]:
                return False
            self.assertEqual([page[name] for name in ("job", "state", "step", "loss", "rate")],
                             [cells[0], cells[1], cells[2], cells[3], cells[4]])
            self.assertEqual(page["bad"], [row[0] for row in page["workers"] if row[1] == "slow"])
            self.assertIn("1", page["bad"])
            for line, row in zip(out[4:6], page["workers"], strict=True):
                cells = re.split(r" {2,}", line)
                self.assertEqual([row[0], row[7], row[8], row[1], row[3]], cells[:4] + cells[5:6])
            return True
        for _ in range(20):
            if self.at_rest(path, both):
                return
        self.fail("the page and heturun ps never showed the same step")

    def at_rest(self, path, look):
        """Calls `look` while heturun is stopped, and the page has had the time to ask for the last state."""
        pid = json.loads(pathlib.Path(path, "job.json").read_text())["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            self.next_page()
            return look()
        finally:
            os.kill(pid, signal.SIGCONT)

    def check_log(self, path):
        """The page shows the lines of the chosen log as they are written."""
        self.browser.wait("document.getElementById('lines').textContent.includes('did ')")
        lines = [line[24:] for line in pathlib.Path(path, "worker-0.log").read_text().splitlines()]
        shown = re.findall(r"did \d+", self.page()["log"])
        self.assertEqual(shown, [line for line in lines if line.startswith("did ")][:len(shown)])
        self.browser.value("(s => { s.value = 'heturun.log'; s.dispatchEvent(new Event('change')); })"
                           "(document.getElementById('log'))")
        self.browser.wait("document.getElementById('lines').textContent.includes(' is slow: ')")

    def check_hidden(self):
        """While the page is hidden, it asks for nothing."""
        self.browser.value("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        self.browser.value("document.dispatchEvent(new Event('visibilitychange'))")
        self.assertTrue(wait_until(lambda: not self.browser.value("asks"), MANY_S))
        before = self.browser.value("asked")
        self.browser.value("new Promise(r => setTimeout(r, 2500)).then(() => { window.waited = true; })")
        self.browser.wait("window.waited")
        self.assertEqual(self.browser.value("asked"), before)
        self.browser.value("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        self.browser.wait(f"asked > {before}")

    def check_curve(self, path):
        """With the arrow keys, the curve says the losses of the file."""
        points = [json.loads(line) for line in pathlib.Path(path, history.HISTORY).read_text().splitlines()]
        if len(points) > watched.MOST_GROUPS:
            points = []
        self.browser.value("document.getElementById('curve').focus()")
        for key, which in (("ArrowRight", -1), ("ArrowLeft", -2), ("Home", 0), ("ArrowRight", 1)):
            self.browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
            at = self.page()["at"]
            if points:
                step, loss = re.fullmatch(r"Step ([\d,]+): loss ([\d.]+)", at).groups()
                self.assertEqual(int(step.replace(",", "")), points[which]["step"])
                self.assertAlmostEqual(float(loss), points[which]["loss"], delta=1e-3 * points[which]["loss"])
            else:
                self.assertRegex(at, r"^Steps? [\d,]+( to [\d,]+)?: (mean )?loss ")


@unittest.skipIf(BROWSER is None, REASON)
class Looks(PageCase):
    def made(self, count, failed=False):
        """Returns the path of a run folder of a long job with texts that look like HTML."""
        path = pathlib.Path(self.folder, "made")
        path.mkdir()
        ends = ["ended", "exited with status 1" if failed else "ended"]
        status = {"step": count, "total": 2 * count, "loss": 1.25, "samples_per_s": 12.5, "eta_s": 65.0,
                  "status": int(failed), "ended": "2026-11-30T20:47:56+00:00",
                  "workers": [{"worker": i, "host": "<i>w0</i>", "pid": 7 + i, "state": ends[i], "compute_s": 0.1 * (i + 1),
                               "usual_s": 0.1, "step": count, "row": i, "at": ""} for i in range(2)]}
        path.joinpath("status.json").write_text(json.dumps(status))
        path.joinpath("job.json").write_text(json.dumps({
            "job": "0123456789ab", "command": ["python3", "<script>alert(1)</script>"], "host": os.uname().nodename,
            "pid": 0, "began": "2026-11-30T20:00:00+00:00", "directory": "/"}))
        stamp = "2026-11-30 20:47:55.464 "
        path.joinpath("worker-1.log").write_text(
            f"{stamp}<img src=x onerror=alert(1)>\n{stamp}! Traceback\n{stamp}! wrong\n")
        path.joinpath("heturun.log").write_text(f"{stamp}worker 1 exited with status 1\n")
        path.joinpath("progress.jsonl").write_text("".join(
            json.dumps({"step": i, "loss": 3.0 / i ** 0.2}) + "\n" for i in range(1, count + 1)))
        return str(path)

    def test_100000_points_and_a_failure(self):
        self.open(self.made(100_000, failed=True))
        page = self.page()
        self.assertEqual((page["state"], page["isFailure"]), ("ended: status 1", True))
        for text in ("worker 1 exited with status 1 (exit status 1)", "Traceback", "wrong"):
            self.assertIn(text, page["failure"])
        self.assertEqual(page["command"], "python3 '<script>alert(1)</script>'")
        self.assertIn("<img src=x onerror=alert(1)>", page["log"], "the log of the failed worker is chosen")
        self.assertEqual(page["workers"][0][7], "<i>w0</i>")
        self.assertEqual(self.browser.value("curve.groups.length"), watched.MOST_GROUPS)
        self.assertRegex(page["label"], "at step 100,000")
        self.browser.value("document.getElementById('logarithmic').click()")
        self.assertTrue(self.browser.value("curve.isLog"))
        self.check_nothing_failed()

    def test_fits_a_phone_and_has_names(self):
        self.open(self.made(1000))
        for width in (390, 1280):
            self.browser.resize(width, 900)
            self.browser.wait(f"innerWidth === {width} && (!curve.width || curve.width <= {width})")
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)
            texts = self.browser.value("[...document.querySelectorAll('#curve text')].map(t => [t.textContent, "
                                       "t.getBoundingClientRect().left, t.getBoundingClientRect().right])")
            self.assertGreater(len(texts), 5)
            for text, left, right in texts:
                self.assertTrue(0 <= left < right <= width, (text, left, right))
        colours = []
        for dark in (False, True):
            self.browser.set_dark(dark)
            colours.append(self.browser.value("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(colours, ["rgb(255, 255, 255)", "rgb(20, 23, 28)"])
        tree = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")]
        for role, name in named:
            if role in ("checkbox", "combobox", "MenuListPopup", "table", "region", "progressbar", "log", "image", "link"):
                self.assertTrue(name or role == "MenuListPopup", (role, name))
        self.assertIn(("checkbox", "Logarithmic"), named)
        self.assertIn(("log", "Output"), named)
        focusable = self.browser.value("[...document.querySelectorAll('a[href],input,select,[tabindex=\"0\"]')].map("
                                       "e => e.id || e.className)")
        for name in ("skip", "curve", "logarithmic", "log", "lines"):
            self.assertIn(name, focusable)


if __name__ == "__main__":
    unittest.main(verbosity=2)
