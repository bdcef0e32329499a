#!/usr/bin/env python3
"""The table of models and schedules in docs/pytorch.md equals the results of these models.

table_test.py             a sample of its cells
table_test.py --whole     all of them
table_test.py --write     writes the table
Skipped where PyTorch is not installed (`./run torch`)."""

import json
import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "pytorch.md"
BEGIN, END = "<!-- made by tests/python/torch/table_test.py --write -->\n", "<!-- end -->\n"
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "chimera")
SAMPLE = {"nn.Sequential with BatchNorm1d": ("chimera",), "nanoGPT": ("zb-v",),
          "VisionTransformer (torchvision)": ("interleaved-1f1b",)}
WHOLE = "--whole" in sys.argv
THERE = all(find_spec(name) for name in ("torch", "transformers", "torchvision"))


def cells(models, schedules):
    """Returns {(model, schedule): result}, from a job of two workers for each model."""
    found = {}
    for model in models:
        run = subprocess.run(["heturun", "-w", "2", sys.executable, HERE / "torch_table_worker.py", ",".join(schedules),
                              model], capture_output=True, text=True, timeout=1500)
        lines = [line[line.index("CASE ") + 5:] for line in run.stdout.splitlines() if "CASE " in line]
        found |= {(name, schedule): word for name, schedule, word in map(json.loads, lines)}
        for schedule in schedules:
            if (model, schedule) not in found:
                found[model, schedule] = f"crash: {(run.stdout + run.stderr)[-1500:]}"
        print(model, [found[model, schedule] for schedule in schedules], flush=True)
    return found


def text_of(found, rows):
    """Returns the table and, below it, the reasons of refused cases."""
    reasons = list(dict.fromkeys(word for word in found.values() if word.startswith("refused")))
    lines = ["| model | lines to port | " + " | ".join(SCHEDULES) + " |", "|---" * (2 + len(SCHEDULES)) + "|"]
    for name, row in rows.items():
        words = [found[name, schedule] for schedule in SCHEDULES]
        words = [f"refused ({1 + reasons.index(word)})" if word in reasons else word for word in words]
        lines.append(f"| {name} | {row.lines} | " + " | ".join(words) + " |")
    notes = [f"{1 + number}. {reason.removeprefix('refused: ')}" for number, reason in enumerate(reasons)]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def in_page():
    """Returns the page's table, and the page before and after it."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    return before, table, after


@unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
@unittest.skipUnless(THERE, "transformers or torchvision is not there: ./run torch installs it")
class Table(unittest.TestCase):
    """Each cell is tried on two workers."""

    def test_table(self):
        """Every cell that is tried gives the result on the page. No cell is wrong, and no job crashes."""
        import torch_table_models as table

        rows = table.ROWS_OF_TABLE
        _, text, _ = in_page()
        if WHOLE:
            found = cells(rows, SCHEDULES)
            self.assertFalse({case: word for case, word in found.items() if word.startswith(("wrong", "crash"))})
            self.assertEqual(text_of(found, rows), text)
            return
        self.assertFalse("wrong" in text or "crash" in text)
        lines = {line.split(" | ")[0].removeprefix("| "): line.removesuffix(" |").split(" | ")[1:]
                 for line in text.splitlines() if line.startswith("| ")}
        self.assertEqual(list(lines), ["model", *rows])
        for name, row in rows.items():
            self.assertEqual(lines[name][0], str(row.lines), name)
        for name, schedules in SAMPLE.items():
            for (_, schedule), word in cells([name], schedules).items():
                with self.subTest(model=name, schedule=schedule):
                    self.assertEqual(word.partition(":")[0], lines[name][1 + SCHEDULES.index(schedule)].partition(" (")[0])


if __name__ == "__main__":
    if "--write" in sys.argv:
        import torch_table_models

        chosen = torch_table_models.ROWS_OF_TABLE
        head, _, tail = in_page()
        PAGE.write_text(head + BEGIN + text_of(cells(chosen, SCHEDULES), chosen) + END + tail)
    else:
        sys.argv = [word for word in sys.argv if word != "--whole"]
        unittest.main(verbosity=2)  # prints the reason for a skip
