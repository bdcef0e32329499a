"""Every option is defined once: the tool's help, the scripts' help, Python's keywords and docs/reference.md agree with its
table (base/fields.h). The test covers a field as soon as it is added to a table."""
import inspect
import os
import pathlib
import re
import subprocess
import sys
import unittest

import hetu as ht
from hetu import _hetu, averaging, lr, optim, options, schedule, training

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = {"plan": "simulate", "choose": "choose", "sizes": "schedule"}


def plain(text):
    return " ".join(text.split())


def help_of(*command):
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "100000"})
    return plain(done.stdout)


class Everywhere(unittest.TestCase):
    def shows(self, text, flag, says):
        """Checks that a help text has an entry with the flag, its argument or choices, and the complete description."""
        self.assertRegex(text, rf"(?:^| ){re.escape(flag)}(?: \S+)? {re.escape(plain(says))}(?:[ :]|$)")

    def test_the_tools_help(self):
        for table, command in TOOL.items():
            shown = help_of("hetu", command)
            for field in options.table(table).values():
                with self.subTest(table=table, field=field.name):
                    if field.within:
                        self.assertRegex(shown, rf" {field.within} K=V,… further constants: [a-z_, ]*\b{field.name}\b")
                        continue
                    self.shows(shown, field.flag, field.help)
                    if field.negated:
                        self.shows(shown, f"--no-{field.flag[2:]}", field.negated)

    def test_the_scripts_help(self):
        for script, batch in (("train_bert.py", 64), ("train_resnet.py", 128)):
            shown = help_of(sys.executable, str(ROOT / "python" / script))
            tables = [options.table(name) for name in ("training", "averaging", "stragglers")]
            # --preduce and --adpsgd select the averaging method. Seeds come from the job's --seed.
            unsaid = [options.table("averaging")["method"], options.table("averaging")["seed"],
                      options.table("stragglers")["seed"]]
            for field in (field for table in tables for field in table.values() if field not in unsaid):
                with self.subTest(script=script, field=field.name):
                    if field.within:
                        self.assertRegex(shown, rf" {field.within} K=V,… further constants: [a-z_, ]*\b{field.name}\b")
                    elif field.negated:
                        self.shows(shown, f"--no-{field.flag[2:]}", field.negated)
                    elif field.name == "batch_size":
                        self.shows(shown, field.flag, f"{field.doc} (default {batch})")
                    else:
                        self.shows(shown, field.flag, field.help)

    def test_the_reference_page(self):
        page = (ROOT / "docs" / "reference.md").read_text()
        for table in options.tables():
            part = page.split(f"### Options: {table}\n")
            self.assertEqual(len(part), 2, table)
            rows = [line for line in re.split(r"\n##+ ", part[1])[0].splitlines() if line.startswith("| `")]
            fields = list(options.table(table).values())
            self.assertEqual(len(rows), len(fields), table)
            for row, field in zip(rows, fields, strict=True):
                with self.subTest(table=table, field=field.name):
                    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
                    self.assertEqual(cells[0], f"`{field.name}`")
                    self.assertEqual(cells[2], field.type)
                    self.assertEqual(cells[3], field.shown)
                    self.assertEqual(cells[5], field.since)
                    self.assertEqual(cells[6].replace("\\|", "|"), field.doc)

    def test_pythons_keywords(self):
        taken = inspect.signature(ht.Executor).parameters
        for field in options.table("training").values():
            if field.name != "batch_size":  # a setting of the data
                self.assertIn(field.name, taken)
                self.assertIn(field.name, ht.Executor.__doc__)
            if field.name not in ("batch_size", "micro_batches"):
                self.assertEqual(taken[field.name].default, field.default if field.otherwise is None else None)
        for kind, table in ((averaging.Averaging, "averaging"), (averaging.Stragglers, "stragglers")):
            self.assertEqual(list(inspect.signature(kind).parameters), list(options.table(table)))
            for field in options.table(table).values():
                self.assertEqual(getattr(kind(), field.name), field.default if field.type != "records" else [])
                self.assertIn(field.doc, kind.__doc__)
        for table in ("plan", "choose", "training"):
            for field in options.table(table).values():
                if field.default not in (None, "", []):
                    with self.subTest(table=table, field=field.name):
                        alone = table != "plan" or field.name not in options.table("averaging") or field.name == "overlap"
                        rest = {} if alone or field.name == "seed" else {"sync_method": "preduce"}
                        if table == "plan" and field.name in ("factor_layers", "curvature_every", "inverses"):
                            rest = {"fill": "after"}
                        _hetu.check_options(table, {field.name: field.default, **rest})
        plan = schedule.generate("1f1b", stages=2, micro_batches=2)
        for field in options.table("plan").values():
            wrong = [{"nobody": 1}] if field.type == "records" else object()
            says = rf"^options_test\.py:\d+: ({field.name}: |{field.name} 'nobody=1')"
            with self.subTest(field=field.name), self.assertRaisesRegex(ValueError, says):
                schedule.simulate(plan, **{field.name: wrong})

    def test_messages_name_keywords(self):
        """Messages of C++ name options by their flags. Python's keywords replace those, and no other flag."""
        for name in ("training", "averaging", "stragglers"):
            for field in options.table(name).values():
                if name == "training" or field.name != "method":  # which has the flag of training's sync_method
                    said = options.as_keywords(f"{field.flag} 3: leave {field.flag}, or heturun {field.flag}-x, out")
                    self.assertEqual(said, f"{field.name} 3: leave {field.name}, or heturun {field.flag}-x, out")
        for name in ("plan", "choose"):
            for field in options.table(name).values():
                self.assertEqual(schedule._words(f"'{field.flag}'"), f"'{field.name}'")
        for kept in ("heturun --on-failure shrink: leave it out", "heturun --pipelines 3", "x--seed --seeds --no-seed -"):
            self.assertEqual(options.as_keywords(kept), kept)
        self.assertEqual(options.as_keywords("--learning-rate, --damping and --optimizer"),
                         "learning_rate, damping and optimizer")
        self.assertEqual(options.as_keywords("--pipeline x without --adpsgd: --costs FILE (--resume)"),
                         "pipeline x without averaging: costs FILE (resume)")
        for found, meant in (("--seeed; did you mean '--seed'?", "seeed; did you mean 'seed'?"),
                             ("--on-failure", "on_failure")):
            self.assertEqual(options.as_keywords(f"unknown option {found}; --help lists them"),
                             f"unknown option {meant}; help(hetu.Executor) lists them")

    def test_kfacs_places_stand_once(self):
        plan, parser = options.table("plan"), training.Parser()
        training.add_options(parser)
        for kind in options.table("sgd")["kind"].choices:
            for name in ("fill", "curvature_every", "inverses"):
                field = options.table(kind)[name]
                for told in ("flag", "choices", "doc", "range", "argument"):
                    self.assertEqual(getattr(field, told), getattr(plan[name], told), (kind, name, told))
                flag = parser._option_string_actions[field.flag]
                self.assertEqual((tuple(flag.choices or ()), flag.help), (field.choices, field.help))

    def test_optimizers_and_rates(self):
        for kind in options.table("sgd")["kind"].choices:
            made = optim.named(kind, 0.1)
            settings = made.settings()
            self.assertEqual(made.kind, kind)
            self.assertEqual(list(settings), [*options.table(kind), "rate"])
            for field in options.table(kind).values():
                self.assertEqual(settings[field.name], field.default, (kind, field.name))
        self.assertEqual(list(optim.KINDS), list(options.table("sgd")["kind"].choices))
        for field in options.table("rate").values():
            if field.name != "base":
                self.assertEqual(list(getattr(lr.constant(0.1), field.name)) if field.type.startswith("list") else
                                 getattr(lr.constant(0.1), field.name), field.default)


class Refused(unittest.TestCase):
    def test_by_name_kind_range_and_word(self):
        for values, says in (({"chunk": 2}, "unknown option --chunk; did you mean '--chunks'"),
                             ({"chunks": [2]}, "--chunks must be a whole number"),
                             ({"chunks": 0.5}, "--chunks must be a whole number, got '0.5'"),
                             ({"threads": -1}, "--threads must be >= 0, got -1"),
                             ({"threads": 1 << 70}, "--threads: 1180591620717411303424 is too large"),
                             ({"concat": "halfing"}, "--concat: unknown 'halfing'; known: direct, doubling"),
                             ({"with_recompute": "yes"}, "--with-recompute must be true or false, got 'yes'"),
                             ({"sync": "never"}, "--sync: unknown placement of gradient sums 'never'"),
                             ({"memory_limit": "4GB"}, "'4GB' is not a size")):
            with self.subTest(says), self.assertRaisesRegex(ValueError, re.escape(says)):
                options.check("training", values)
        options.check("training", {"chunks": None, "memory_limit": "4GiB", "with_recompute": False})
        with self.assertRaisesRegex(ValueError, "there is no table of options 'nobody'"):
            options.table("nobody")

    def test_rules_between_options(self):
        whole = {"method": "1f1b", "batch_size": 8, "micro_batches": 4}
        _hetu.check_training_options(whole)
        _hetu.check_training_options({"method": "pipedream", "batch_size": 7})  # one micro-batch by default
        for change, says in (({"batch_size": 10},
                              "--batch-size 10 is not a multiple of --micro-batches 4; choose a multiple"),
                             ({"batch_size": 10, "micro_batches": None}, "is not a multiple of --micro-batches 4"),
                             ({"batch_size": 0}, "--batch-size must be >= 1, got 0")):
            with self.subTest(says), self.assertRaisesRegex(ValueError, re.escape(says)):
                _hetu.check_training_options({**whole, **change})
        with self.assertRaisesRegex(ValueError, "--backward can't be combined with --input-grad or --weight-grad"):
            options.check("plan", {"backward": 1, "input_grad": 2})

    def test_micro_batches_are_a_number_on_both_sides(self):
        for told, made in ((None, 4), (2, 2)):
            self.assertEqual(_hetu.TrainingOptions({"method": "gpipe", "micro_batches": told}).micro_batches, made)
        plan = schedule.generate("gpipe", stages=2, micro_batches=6)
        self.assertEqual(_hetu.TrainingOptions({"method": "mine", "plan": plan}).micro_batches, 6)
        self.assertEqual(_hetu.TrainingOptions({"method": "hanayo", "stages": 3, "chunks": 4}).model_stages, 12)


if __name__ == "__main__":
    unittest.main()
