"""The playground gives the numbers of the tool `hetu`: its core in node, and the page in a browser, through the controls.

The tests need the built page (./run playground), node for the core and a Chromium for the page. The tests name
what is missing, and skip its part.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
from pathlib import Path
from typing import Any

from browser import BROWSER, REASON, Browser

ROOT = Path(__file__).resolve().parents[3]
PAGE = Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build")) / "playground"
NODE = shutil.which("node") or shutil.which("nodejs")
UNBUILT = None if (PAGE / "core.js").exists() else f"{PAGE}/core.js doesn't exist: ./run playground builds the playground"
NO_NODE = UNBUILT or (None if NODE else "node is not installed: the playground's core was not run")
NO_BROWSER = UNBUILT or (REASON if BROWSER is None else None)

DEADLOCK = "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"
# Stages, micro-batches, and costs.
GRID = [(2, 4, {}), (4, 8, {"forward": "1.5", "latency": "0.25"}), (4, 12, {"input_grad": "0.7", "weight_grad": "1.3"}),
        (8, 16, {"latency": "0.05", "memory_limit": "6"}), (3, 5, {"forward": "0.1", "input_grad": "0.2"})]
MOST_BYTES = 2_000_000


def tool(words: list[str], folder: str) -> dict[str, Any]:
    """Runs the tool, and returns its answer in the playground's form."""
    done = subprocess.run(["hetu", *words], cwd=folder, capture_output=True, text=True, check=False)
    return {"status": done.returncode, "output": done.stdout, "error": done.stderr}


def words_of(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--" + name.replace("_", "-"), value)]


def methods() -> list[str]:
    """Returns the names in the tool's help, between "Methods:" and "Options:"."""
    text = subprocess.run(["hetu", "simulate", "--help"], capture_output=True, text=True, check=True).stdout
    rows = text.partition("\nMethods:\n")[2].partition("\nOptions:\n")[0].splitlines()
    return [row.split()[0] for row in rows if row[:2] == "  " and row[2] != " "]


@unittest.skipIf(NO_NODE, NO_NODE or "")
class Core(unittest.TestCase):
    """The compiled core, request by request."""

    def ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        program = """
            const requests = JSON.parse(require("fs").readFileSync(0));
            require(process.argv[1])().then(core => {
              const ask = request => core.ccall("hetu_answer", "string", ["string"], [JSON.stringify(request)]);
              process.stdout.write(JSON.stringify(requests.map(ask).map(JSON.parse)));
            });"""
        done = subprocess.run([str(NODE), "-e", program, str(PAGE / "core.js")], input=json.dumps(requests),
                              capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    def compare(self, commands: list[list[str]], files: dict[str, str] | None = None) -> int:
        """Compares status, output and errors of these commands with the tool's, and returns how many succeed."""
        answers = self.ask([{"words": words, "files": files or {}} for words in commands])
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (files or {}).items():
                (Path(folder) / name).write_text(text)
            for words, answer in zip(commands, answers, strict=True):
                with self.subTest(words=" ".join(words)):
                    self.assertEqual(answer, tool(words, folder))
        return sum(answer["status"] == 0 for answer in answers)

    def test_figures_of_every_method_equal_the_tools(self) -> None:
        commands = []
        for stages, micros, costs in GRID:
            sizes = words_of({"stages": str(stages), "micro_batches": str(micros), **costs})
            commands += [["simulate", method, *sizes, "--format", "json"] for method in methods()]
        self.assertGreater(self.compare(commands), len(commands) // 2)
        print(f"{len(commands)} simulations equal the tool's", flush=True)

    def test_files_of_every_method_equal_the_tools(self) -> None:
        commands = [["schedule", method, "--stages", "4", "--micro-batches", "8", "--format", form]
                    for method in methods() for form in ("svg", "csv", "torch", "json")]
        self.assertGreater(self.compare(commands), len(commands) // 2)

    def test_own_schedules_are_proved_and_refused_in_the_tools_words(self) -> None:
        files = {"own.csv": DEADLOCK, "good.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "twice.csv": "0F0,0F0,0B0\n",
                 "text.csv": "hello\n", "empty.csv": ""}
        commands = [[command, name, *more] for name in files
                    for command, *more in (["verify"], ["simulate", "--format", "json"], ["schedule", "--format", "svg"])]
        self.assertEqual(self.compare(commands, files), 3)
        answer = self.ask([{"words": ["verify", "own.csv"], "files": files}])[0]
        self.assertIn("worker 0 is at cell 2: 0B0 waits for 1B0", answer["error"])

    def test_rankings_and_plans_equal_the_tools(self) -> None:
        stage = {"forward": 1, "input_grad": 1.5, "weight_grad": 0.5}
        files = {"costs.json": json.dumps({"blocks": [stage] * 8, "samples_per_micro_batch": 1, "link": {"latency": 0.1}})}
        commands = [["choose", "--stages", "4", "--format", "json"], ["choose", "--stages", "3", "--micro-batches", "6"],
                    ["plan", "--costs", "costs.json", "--workers", "4", "--global-batch", "8", "--budget", "0.3"]]
        self.assertEqual(self.compare(commands, files), len(commands))

    def test_numbers_and_wrong_words_are_read_as_the_tool_reads_them(self) -> None:
        texts = ["0x10", "1e1", "1E-2", " 1", "+1", "-1", "1.", ".5", "inf", "nan", "1e400", "1e-400", "0e-400", "1,5", "",
                 "0.1", "1e", "1e15"]
        base = ["simulate", "1f1b", "--stages", "2", "--micro-batches", "3", "--format", "json"]
        commands = [[*base, f"--latency={text}"] for text in texts]
        commands += [["simulate"], ["simulate", "1f1b"], ["simulate", "1f1", "--stages", "2"], [*base, "--chunks", "2"],
                     [*base, "--stages", "0"], ["verify", "missing.csv"],
                     ["simulate", "chimera", "--stages", "3", "--micro-batches", "3"]]
        self.compare(commands)

    def test_a_function_of_python_and_an_unknown_command_are_refused(self) -> None:
        answers = self.ask([{"words": ["verify", "mine:plan", "--stages", "2", "--micro-batches", "2"]},
                            {"words": ["doctor"]}])
        self.assertIn("Python functions can't be called here", answers[0]["error"])
        self.assertIn("no such command", answers[1]["error"])


@unittest.skipIf(NO_BROWSER, NO_BROWSER or "")
class Page(unittest.TestCase):
    """The page, through its own controls."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = Browser(cls.folder.name + "/profile")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()
        cls.folder.cleanup()

    def setUp(self) -> None:
        self.open()

    def open(self, fragment: str = "") -> None:
        self.browser.open(PAGE / "index.html", fragment, "document.body.dataset.tabulated !== undefined")

    def set(self, values: dict[str, str]) -> None:
        """Sets fields as a user does, and waits until the page has drawn and tabulated them."""
        for name, value in values.items():
            self.browser.value(f"""(() => {{
                const field = document.getElementById({json.dumps(name)});
                field.value = {json.dumps(value)};
                field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input", {{bubbles: true}}));
            }})()""")
        self.settled()

    def settled(self) -> None:
        self.browser.wait("document.body.dataset.tabulated !== undefined")

    def click(self, selector: str) -> None:
        self.browser.value(f"document.querySelector({json.dumps(selector)}).click()")
        self.settled()

    def text(self, selector: str) -> str:
        return str(self.browser.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def svg(self) -> str:
        source = str(self.browser.value("document.getElementById('picture').src"))
        return urllib.parse.unquote(source.partition(",")[2])

    def table(self) -> dict[str, dict[str, str]]:
        """Returns the figures of each row, or the words that refuse the method."""
        rows = self.browser.value("""Object.fromEntries([...document.querySelectorAll("#table tbody tr")].map(row =>
            [row.dataset.method, {why: (row.querySelector(".why") || {}).innerText || "", ...Object.fromEntries(
              [...row.querySelectorAll("[data-value]")].map(cell => [cell.dataset.figure, cell.dataset.value]))}]))""")
        return dict(rows)

    def figures(self) -> dict[str, str]:
        return dict(self.browser.value("""Object.fromEntries([...document.querySelectorAll("#figures [data-value]")].map(
            cell => [cell.dataset.figure, cell.dataset.value]))"""))

    def check(self, shown: dict[str, str], expected: dict[str, Any]) -> None:
        """Checks figures of the page against the JSON of the tool, as exact numbers."""
        peak = max(worker["peak_activations"] for worker in expected["workers"])
        for name, value in shown.items():
            self.assertEqual(float(value), peak if name == "peak_activations" else expected[name], name)

    def test_the_table_of_all_methods_equals_the_tool(self) -> None:
        compared = refused = 0
        for stages, micros, costs in GRID:
            values = {"stages": str(stages), "micro_batches": str(micros), **costs}
            self.open()
            self.set(values)
            table = self.table()
            self.assertEqual(sorted(table), sorted(methods()))
            for method, row in table.items():
                expected = tool(["simulate", method, *words_of(values), "--format", "json"], self.folder.name)
                with self.subTest(method=method, values=values):
                    if expected["status"] != 0:
                        self.assertEqual(" ".join(row["why"].split()),
                                         " ".join(expected["error"].removeprefix("hetu simulate: ").split()))
                        refused += 1
                        continue
                    del row["why"]
                    self.assertEqual(len(row), 4)
                    self.check(row, json.loads(expected["output"]))
                    compared += 1
        self.assertGreater(compared, 2 * len(methods()))
        print(f"{compared} rows with equal numbers, {refused} refused in equal words", flush=True)

    def test_every_method_is_drawn_with_the_tools_bytes_and_figures(self) -> None:
        self.set({"stages": "4", "micro_batches": "8", "latency": "0.1"})
        for method in methods():
            self.set({"method": method})
            words = [method, "--stages", "4", "--micro-batches", "8", "--latency", "0.1"]
            drawn = tool(["schedule", *words, "--format", "svg"], self.folder.name)
            with self.subTest(method=method):
                if drawn["status"] != 0:
                    refused = tool(["verify", *words], self.folder.name)
                    self.assertEqual(self.text("#diagnosis"), refused["error"].strip())
                    continue
                self.assertEqual(self.svg(), drawn["output"])
                shown = self.figures()
                self.assertEqual(len(shown), 5)
                self.check(shown, json.loads(tool(["simulate", *words, "--format", "json"], self.folder.name)["output"]))
                self.assertEqual(self.text("#verdict"), tool(["verify", *words], self.folder.name)["output"].strip())
                self.assertEqual(self.text("#command"), "hetu simulate " + " ".join(words))

    def test_a_deadlock_shows_which_worker_waits_for_what(self) -> None:
        self.click("input[value=own]")
        self.assertIn("valid", self.text("#verdict"), "an own schedule begins with the rows of the method")
        self.set({"own": DEADLOCK})
        (Path(self.folder.name) / "own.csv").write_text(DEADLOCK)
        told = tool(["schedule", "own.csv", "--format", "svg"], self.folder.name)
        self.assertEqual(told["status"], 1)
        self.assertEqual(self.text("#diagnosis"), told["error"].strip())
        self.assertIn("worker 1 is at cell 1: 1F1 waits for 0F1", self.text("#diagnosis"))
        self.assertEqual(self.svg(), told["output"])
        self.assertEqual(self.figures(), {})
        self.set({"own": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"})
        self.assertTrue(self.browser.value("document.getElementById('diagnosis').hidden"))
        self.assertEqual(self.figures()["makespan"], "9")

    def test_the_address_holds_the_state(self) -> None:
        self.set({"method": "zb-v", "stages": "3", "micro_batches": "7", "latency": "0.3", "memory_limit": "5"})
        self.set({"method": "chimera", "stages": "4", "concat": "doubling"})
        seen = self.figures(), self.table(), self.svg()
        self.browser.wait("location.hash === address()")
        fragment = str(self.browser.value("location.hash"))
        self.open(fragment)
        self.assertEqual((self.figures(), self.table(), self.svg()), seen)
        self.assertEqual(self.browser.value("document.getElementById('concat').value"), "doubling")
        text = "0F0,0B0\n# é & <b>%41</b>\n"
        self.click("input[value=own]")
        self.set({"own": text})
        self.browser.wait("location.hash === address()")
        refusal = self.text("#diagnosis")
        self.open(str(self.browser.value("location.hash")))
        self.assertEqual(self.browser.value("document.getElementById('own').value"), text)
        self.assertEqual(self.text("#diagnosis"), refusal)

    def test_downloads_are_the_tools_files(self) -> None:
        target = Path(self.folder.name) / "downloads"
        target.mkdir()
        self.browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(target))
        self.set({"method": "zb-v", "micro_batches": "6"})
        words = ["zb-v", "--stages", "4", "--micro-batches", "6", "--format"]
        kinds = {"svg": ("zb-v.svg", "schedule", "svg"), "csv": ("zb-v.csv", "schedule", "csv"),
                 "torch": ("zb-v.torch.csv", "schedule", "torch"), "json": ("zb-v.json", "schedule", "json"),
                 "figures": ("zb-v.figures.json", "simulate", "json")}
        for kind, (name, command, form) in kinds.items():
            self.browser.value(f"document.querySelector('[data-download={kind}]').click()")
            deadline = time.monotonic() + 60
            while not (target / name).exists():
                self.assertLess(time.monotonic(), deadline, f"{name} was not saved; there are {os.listdir(target)}")
                time.sleep(0.05)
            with self.subTest(kind=kind):
                self.assertEqual((target / name).read_text(), tool([command, *words, form], self.folder.name)["output"])

    def test_the_keyboard_alone_changes_a_size(self) -> None:
        self.browser.value("document.getElementById('stages').focus()")
        self.browser.value("document.getElementById('stages').select()")
        self.browser.value("delete document.body.dataset.tabulated")
        self.browser.call("Input.insertText", text="6")
        self.settled()
        self.assertIn("6 stages", self.text("#verdict"))
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        self.assertEqual(self.browser.value("document.activeElement.getAttribute('aria-label')"), "Micro-batches, slider")
        self.browser.value("delete document.body.dataset.tabulated")
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight",
                              windowsVirtualKeyCode=39)
        self.settled()
        self.assertIn("9 micro-batches", self.text("#verdict"))

    def test_every_control_has_a_name_and_the_page_fetches_nothing_else(self) -> None:
        nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "spinbutton", "slider", "combobox", "checkbox", "radio", "link", "image", "img"}
        named = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
        self.assertGreater(len(named), 30)
        self.assertEqual([node for node in named if not node.get("name", {}).get("value")], [])
        asked = [e["params"]["request"]["url"] for e in self.browser.events if e["method"] == "Network.requestWillBeSent"]
        folder = PAGE.as_uri()
        self.assertEqual([url for url in asked if not url.startswith(("data:", folder))], [])
        self.assertEqual([e for e in self.browser.events if e["method"] == "Runtime.exceptionThrown"], [])
        self.assertLess(sum(path.stat().st_size for path in PAGE.iterdir()), MOST_BYTES)

    def test_the_layout_names_only_options_of_the_core_and_fits_a_phone(self) -> None:
        unknown = self.browser.value("""[...document.querySelectorAll(".field")].filter(box =>
            ![...about.options, ...about.plan].some(option => option.name === box.dataset.option)).length""")
        self.assertEqual(unknown, 0)
        self.browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        self.addCleanup(self.browser.call, "Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1,
                        mobile=False)
        self.open()
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 390)

    def test_the_search_gives_the_tools_report(self) -> None:
        self.set({"plan-workers": "2", "plan-global_batch": "4"})
        request = self.browser.value("JSON.stringify({words: plannerWords(), costs: plannerCosts()})")
        self.browser.value("document.getElementById('search').click()")
        self.browser.wait("!document.getElementById('plan').hidden")
        asked = json.loads(request)
        (Path(self.folder.name) / "costs.json").write_text(asked["costs"])
        told = tool(asked["words"], self.folder.name)
        self.assertEqual(told["status"], 0, told["error"])
        self.assertEqual(self.text("#plan").split(), told["output"].split())

    def test_dark_mode_changes_the_paper(self) -> None:
        papers = set()
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            papers.add(self.browser.value("getComputedStyle(document.body).backgroundColor"))
        self.browser.call("Emulation.setEmulatedMedia", features=[])
        self.assertEqual(len(papers), 2, papers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
