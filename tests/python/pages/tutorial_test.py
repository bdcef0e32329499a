"""The tutorials, typed as a newcomer types them: their files written, their commands run, what they show compared."""
import csv
import json
import os
import pathlib
import re
import unittest
from importlib.util import find_spec

from typed_page import ROOT, TypedPage

BUILD = pathlib.Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build"))
PROGRAM = BUILD / "bin" / "example_own_rows"


class Tutorial(TypedPage):
    """docs/tutorial.md."""

    def test_its_files_and_commands(self):
        printed = self.type_page("tutorial.md")
        found = {command: re.findall(r"step \d+: loss (\S+)", out) for command, out in printed.items()}
        trained = {command: losses for command, losses in found.items() if losses}
        self.assertEqual(len(trained), 4, printed)
        self.assertEqual(len({tuple(losses) for losses in trained.values()}), 1, trained)
        for command in trained:
            self.assertGreater(float(re.search(r"right: ([\d.]+)%", printed[command])[1]), 90, printed[command])
        self.assertRegex(printed["python3 use.py"], r"arms [01] [01]\n")


class Schedules(TypedPage):
    """docs/tutorial-schedules.md."""

    def test_its_files_and_commands(self):
        self.type_page("tutorial-schedules.md")
        figures = {"eager.pdf": b"%PDF", "rehearsed.pdf": b"%PDF", "eager.svg": b"<?xml", "rehearsed.html": b"<!",
                   "column.pdf": b"%PDF", "page.pdf": b"%PDF"}
        for name, start in figures.items():
            self.assertTrue((self.folder / name).read_bytes().lstrip().startswith(start), name)
        with open(self.folder / "table.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["method"] for row in rows}, {"1f1b", "zb-h1", "zb-v", "chimera", "eager:eager"})
        for row in rows:
            self.assertEqual(bool(row["rank"]), not row["refused"], row)
        self.assertEqual({row["blocks_per_stage"] for row in rows if row["rank"] and row["method"] == "zb-v"},
                         {"2,1,1,1,1,1,1,1"})


class Cluster(TypedPage):
    """docs/tutorial-cluster.md."""

    def test_its_files_and_commands(self):
        printed = self.type_page("tutorial-cluster.md")
        busy = [float(time) for time in re.findall(r"^worker \d busy +\S+ +(\S+)", printed["hetu compare slow.json"], re.M)]
        self.assertGreater(busy[1], 1.5 * busy[0], "the slow worker is not the busy one")
        records = [json.loads(line) for line in (self.folder / "job.jsonl").read_text().splitlines()]
        self.assertEqual([record["step"] for record in records], list(range(len(records))))
        self.assertTrue((self.folder / "slow.html").exists())


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class PyTorch(TypedPage):
    """docs/tutorial-pytorch.md."""

    def test_its_files_and_commands(self):
        self.type_page("tutorial-pytorch.md")


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class Plan(TypedPage):
    """docs/plan.md, A PyTorch model."""

    def test_its_files_and_commands(self):
        printed = self.type_page("plan.md")
        self.assertRegex(printed["hetu compare trace.json"], r"(1f1b|zb-h1): 4 workers, .*\n(.*\n)+step time +\d")


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
class ComingFromPyTorch(TypedPage):
    """docs/coming-from-pytorch.md."""

    def test_its_commands(self):
        printed = self.type_page("coming-from-pytorch.md")
        self.assertEqual(len(printed), 2)
        self.assertEqual(len({line for out in printed.values() for line in out.splitlines()}), 1, printed)

    def test_names_exist(self):
        from torch.distributed import pipelining

        import hetu.torch

        page = (ROOT / "docs" / "coming-from-pytorch.md").read_text()
        for owner, name in ((hetu.torch, r"hetu\.torch\.(\w+)"), (hetu.torch.Pipeline, r"\bpipe\.(\w+)"),
                            (pipelining, r"`(Schedule\w+|Pipe|PipelineStage|pipeline)\b")):
            found = set(re.findall(name, page))
            self.assertGreater(len(found), 3, name)
            self.assertEqual([word for word in sorted(found) if not hasattr(owner, word)], [])
        for name in re.findall(r"`(Schedule\w+)`", page):
            self.assertGreater(len(hetu.schedule.generate(name, stages=2, micro_batches=4).rows), 0)


@unittest.skipUnless(PROGRAM.exists(), "example_own_rows is not built")
class Cpp(TypedPage):
    """docs/tutorial-cpp.md. The program is built with the tests; package_test builds it as the page does."""

    prepared = (*TypedPage.prepared, "cmake ")

    def test_its_files_and_commands(self):
        (self.folder / "build").mkdir()
        (self.folder / "build" / "own_rows").symlink_to(PROGRAM)
        printed = self.type_page("tutorial-cpp.md")
        example = (ROOT / "docs" / "examples" / "own_rows.cpp").read_text()
        page = (self.folder / "own_rows.cpp").read_text()
        self.assertEqual([line for line in page.splitlines() if line], [line for line in example.splitlines() if line])
        self.assertGreater(int(printed["build/own_rows model"].split()[0]), 380)
        shipped = (ROOT / "docs" / "examples" / "CMakeLists.txt").read_text().partition("\n")[2]
        self.assertEqual((self.folder / "CMakeLists.txt").read_text(),
                         shipped.replace("plan", "own_rows").replace("hetu::pipeline", "hetu::executor"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
