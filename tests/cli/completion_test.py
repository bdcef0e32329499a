"""Tests `hetu completion`: bash offers the options that each command's help lists. Tests `hetu doctor`: it prints one
line per check."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from hetu import _hetu

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build"))
HETU = str(BUILD / "bin" / "hetu")
FOLDER = tempfile.mkdtemp()  # holds heturun and hetu, for PATH
TIMEOUT_S = 120


def setUpModule():
    os.symlink(ROOT / "python" / "heturun", os.path.join(FOLDER, "heturun"))
    os.symlink(HETU, os.path.join(FOLDER, "hetu"))


def tearDownModule():
    shutil.rmtree(FOLDER)


def run(*words, path=None, **more):
    environment = {**os.environ, "PATH": path or f"{FOLDER}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, **more)


@functools.cache
def made_for(shell):
    """Returns the completion script. Cached, because it runs every command's help, which takes seconds."""
    return run(HETU, "completion", shell).stdout


def offered(*lines):
    """Returns the words that bash offers for the last word of each command line."""
    script = made_for("bash")
    for words in lines:
        listed = " ".join(f"'{w}'" for w in words)
        script += f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); _hetu; echo \"${{COMPREPLY[*]}}\"\n"
    done = run("bash", "-u", "-c", script)
    if done.returncode or done.stderr:
        raise AssertionError(done.stderr)
    return [line.split() for line in done.stdout.split("\n")[:-1]]


class Completion(unittest.TestCase):
    def test_commands_and_options(self):
        wanted = {
            "hetu si": {"simulate", "simulate-varuna"}, "hetu data ": {"check", "prepare", "sample", "vocabulary"},
            "hetu simulate gpipe --stage": {"--stage-replicas", "--stages"},
            "hetu simulate zb": {"zb-1p", "zb-2p", "zb-h1", "zb-h2", "zb-v"},
            "hetu ps serve --l": {"--listen"}, "hetu data sample --r": {"--rows"},
            "hetu checkpoint ": {"--help", "-o", "diff", "export", "import", "show"}, "hetu completion ": {"bash", "zsh"},
            "heturun --no": {"--no-server-restart"}, "heturun -w 2 --ver": {"--verbose", "--version"},
            "/some/where/hetu timeline a.json --st": {"--step", "--steps", "--style"}, "hetu completion -": set(),
        }
        found = offered(["hetu", ""], *(line.split(" ") for line in wanted))
        self.assertLessEqual({"schedule", "verify", "data", "ps", "doctor", "completion", "--version"}, set(found[0]))
        for (line, words), got in zip(wanted.items(), found[1:], strict=True):
            self.assertEqual(set(got), words, line)

    def test_every_option_of_every_command(self):
        help_of = run(HETU, "--help").stdout
        commands = re.findall(r"(?m)^  (\S+(?: [a-z]+)?)  ", help_of)
        self.assertIn("data check", commands)
        for command, words in zip(commands, offered(*(["hetu", *c.split(), "-"] for c in commands)), strict=True):
            text = run(HETU, *command.split(), "--help").stdout
            listed = set(re.findall(r"(?m)^ {2,6}(--?[\w-]+)", text))
            self.assertLessEqual(listed, set(words), command)
            # No option of another command that a text mentions, also where it begins a wrapped line.
            usage = re.search(r"usage:.*(?:\n {6}.*)*", text)[0]
            second_names = re.findall(r"(?m)^ {2,6}-\w(?: \S+)?, (--[\w-]+)", text)
            known = {"--help", *listed, *second_names, *re.findall(r"--?\w[\w-]*", usage)}
            self.assertLessEqual({word for word in words if word.startswith("-")}, known, command)

    def test_zsh(self):
        script = made_for("zsh")
        self.assertTrue(script.startswith("#compdef hetu heturun\n"))
        if shutil.which("zsh"):
            done = run("zsh", "-f", "-c", "autoload -U compinit; compinit -u; " + script + "\n_hetu_words hetu ps")
            self.assertEqual((done.stdout.strip(), done.stderr), ("serve status", ""))

    def test_what_is_refused(self):
        for words, says in (([], "needs one shell: bash or zsh"), (["fish"], "fish")):
            done = run(HETU, "completion", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(says, done.stderr)


class Help(unittest.TestCase):
    def test_commands_stand_in_groups_with_an_example(self):
        text = run(HETU, "--help").stdout
        first, *groups = text.split("\n\n")
        self.assertTrue(first.startswith("usage: hetu COMMAND"))
        self.assertEqual([group.split(":\n")[0].split(" (")[0] for group in groups],
                         ["Plans", "Measure and run", "Data", "Jobs", "Other"])
        commands = re.findall(r"(?m)^  (\S+(?: [a-z]+)?)  ", text)
        self.assertEqual(len(commands), len(set(commands)))
        for group in groups:
            *rows, example = group.rstrip().splitlines()[1:]
            words = re.fullmatch(r"  Example: (hetu|heturun) (.+)", example)
            self.assertTrue(words, example)
            if words[1] == "hetu":
                self.assertTrue(any(words[2].startswith(row.strip().split("  ")[0]) for row in rows), example)

    def test_no_line_is_wider_than_100_columns(self):
        for command in ["", *re.findall(r"(?m)^  (\S+(?: [a-z]+)?)  ", run(HETU, "--help").stdout)]:
            text = run(HETU, *command.split(), "--help").stdout
            self.assertEqual([line for line in text.splitlines() if len(line) > 100], [], command)

    def test_a_name_of_several_commands_lists_them(self):
        for name, parts in (("data", ["check", "prepare", "vocabulary", "sample"]), ("ps", ["serve", "status"])):
            done = run(HETU, name)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(re.findall(rf"(?m)^  {name} (\w+)  ", done.stderr), parts)


class Doctor(unittest.TestCase):
    def test_each_thing_is_tried(self):
        done = run(HETU, "doctor")
        lines = done.stdout.splitlines()
        found = {line[8:23].strip(): line[:8].strip() for line in lines[:-1]}
        self.assertEqual(done.returncode, 1 if "WRONG" in found.values() else 0, done.stdout + done.stderr)
        self.assertLessEqual({"shared memory", "Open MPI", "ssh", "ZeroMQ", "HDF5", "JPEG and PNG", "OpenCV", "CUDA"},
                             set(found))
        for name in ("processor", "kernels", "Python", "NumPy"):
            self.assertEqual(found[name], "works", done.stdout)
        problem = _hetu.cuda_problem()
        self.assertEqual(found["CUDA"], "missing" if problem else "works")
        self.assertIn(problem, done.stdout)
        cores = _hetu.machine_cores()
        self.assertIn(f"{cores} core{'' if cores == 1 else 's'} for this process", lines[0])
        place = str(min(os.sched_getaffinity(0)))
        self.assertIn(" 1 core for this process", run("taskset", "-c", place, HETU, "doctor").stdout)
        if run("mpirun", "--version").returncode == 0 and found["Open MPI"] != "missing":
            self.assertIn("hello from worker 0 of 1", done.stdout)
        for line in lines[:-1]:
            if line.startswith("missing"):
                self.assertIn("; install: ", line)

    def test_what_is_not_there_is_missing(self):
        """Runs with an empty PATH."""
        with tempfile.TemporaryDirectory() as empty:
            done = run(HETU, "doctor", path=empty)
        found = {line[8:23].strip(): line for line in done.stdout.splitlines()}
        self.assertIn("mpirun is not found; install: libopenmpi-dev openmpi-bin", found["Open MPI"])
        self.assertIn("ssh is not found", found["ssh"])
        self.assertTrue(found["Python"].startswith("missing"), found["Python"])
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_arguments_are_refused(self):
        done = run(HETU, "doctor", "--all")
        self.assertEqual((done.returncode, done.stderr), (2, "hetu doctor: takes no arguments, got '--all'\n"))


if __name__ == "__main__":
    unittest.main()
