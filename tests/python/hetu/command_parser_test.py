"""The parser of scripts and commands: misspelt flags, and the groups of --help."""
import argparse
import contextlib
import functools
import io
import os
import re
import tempfile
import unittest
import unittest.mock

import train_bert
import train_ctr
import train_gpt
import train_resnet
from hetu.job.flags import Parser
from hetu.launch import command_line
from hetu.sample import prepare, vocabulary

SCRIPTS = (train_bert, train_ctr, train_gpt, train_resnet)


class Suggestions(unittest.TestCase):
    def test_scripts_suggest_the_closest_flags(self):
        for words, message in (
                (["--stps", "3"], "unrecognized arguments: --stps 3; did you mean --steps? --help lists the options"),
                (["--micro_batchs=4", "--pipline", "x"], "; did you mean --micro-batches and --pipeline? --help lists"),
                (["--qqqqqqqq"], "unrecognized arguments: --qqqqqqqq; --help lists the options"),
                (["stray"], "unrecognized arguments: stray; --help lists the options")):
            for script in SCRIPTS:
                with self.subTest(words=words, script=script.__name__), self.assertRaises(ValueError) as caught:
                    script.options().parse_args(["--data", "x", *words])
                self.assertIn(message, str(caught.exception))

    def test_commands_suggest_the_closest_flags(self):
        for main, words, message in (
                (prepare.parse, ["t", "--vocab", "v", "-o", "d", "--pases", "3"], "did you mean --passes?\n"),
                (vocabulary.main, ["t", "-o", "d", "--lettters", "3"], "did you mean --letters?\n")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
                main(words)
            self.assertEqual(ended.exception.code, 2)
            self.assertTrue(errors.getvalue().endswith(message), errors.getvalue())

    def test_heturun_suggests_the_closest_flag(self):
        for flag, message in (("--wokers", "option --wokers not recognized; did you mean --workers?"),
                              ("--qqqqqqqq", "option --qqqqqqqq not recognized;"),
                              ("--config", "option --config requires argument;")):
            with self.assertRaises(command_line.UsageError) as caught:
                command_line.Options([flag])
            self.assertEqual(str(caught.exception), f"{message} heturun --help lists the flags")


class Config(unittest.TestCase):
    def test_a_type_function_may_refuse_a_value_of_a_file(self):
        """The line has the message of ArgumentTypeError. For TypeError and ValueError, it names the type."""
        def even(text):
            if text == "none":
                raise TypeError("not a text")
            if int(text) % 2:
                raise argparse.ArgumentTypeError(f"{text} is odd; give an even number")
            return int(text)

        parser = Parser()
        parser.add_argument("--size", type=even)
        parser.add_argument("--half", type=functools.partial(even))
        parser.add_config()
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/flags.yml"
            for line, says in (("size: 3", "flags.yml:1: size: 3 is odd; give an even number"),
                               ("size: none", "flags.yml:1: size: none is not a valid even"),
                               ("size: x", "flags.yml:1: size: x is not a valid even"),
                               ("half: x", "flags.yml:1: half: x is not a valid functools.partial")):
                with open(file, "w") as out:
                    out.write(line + "\n")
                with self.assertRaises(ValueError) as caught:
                    parser.parse_args(["--config", file])
                self.assertIn(says, str(caught.exception))


class Groups(unittest.TestCase):
    def test_no_line_is_wider_than_100_columns(self):
        with unittest.mock.patch.dict(os.environ, COLUMNS="100"):
            for script in SCRIPTS:
                wide = [line for line in script.options().format_help().splitlines() if len(line) > 100]
                self.assertEqual(wide, [], script.__name__)

    def test_every_option_is_in_a_group(self):
        for script in SCRIPTS:
            with self.subTest(script=script.__name__):
                help_of = script.options().format_help()
                start, _, options = help_of.partition("\noptions:\n")
                plain, *groups = re.split(r"(?m)^(?=\S.*:$)", options)
                titles = [group.splitlines()[0].rstrip(":") for group in groups]
                self.assertLessEqual({"model and data", "length, learning rate and optimizer", "pipelines and their plan",
                                      "devices, precision and memory", "averaging in groups, and stragglers",
                                      "checkpoints, records and checks"}, set(titles))
                self.assertEqual(re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", plain), ["--help", "--config"])
                self.assertRegex(start, r"\n    heturun -[cw] \S+ python3 python/train_\w+\.py --data ")


if __name__ == "__main__":
    unittest.main()
