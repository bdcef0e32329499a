"""Output of heturun by stream: standard output holds only the output of workers, raw or tagged."""
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

from hetu.launch import output
from launch_test import HETURUN, MANY, LaunchCase

REHEARSE = ["hetu", "rehearse", "1f1b", "--stages", "2", "--micro-batches", "4", "--repeat", "1", "--time-unit", "1ms"]
WRITER = "import os, sys; w = os.environ['OMPI_COMM_WORLD_RANK']; "


class Raw(LaunchCase):
    def test_json_and_a_trace_of_a_rehearsal_are_read_by_whoever_reads_json(self):
        for form, key in (("json", "ratio"), ("trace", "traceEvents")):
            with self.subTest(format=form):
                heturun = subprocess.Popen([*HETURUN, "-w", "2", *REHEARSE, "--format", form], env=self.env, text=True,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                reader = subprocess.run([sys.executable, "-m", "json.tool"], stdin=heturun.stdout, capture_output=True,
                                        text=True, timeout=MANY)
                heturun.stdout.close()
                error = heturun.stderr.read()
                heturun.stderr.close()
                self.assertEqual((heturun.wait(MANY), reader.returncode), (0, 0), error + reader.stderr)
                self.assertIn(key, json.loads(reader.stdout))
                self.assertTrue(error.startswith("Cluster: {\n"), error)

    def test_every_byte_of_one_that_writes_alone(self):
        """All bytes of the one worker of three that writes arrive: lines longer than a guard's buffer, no last newline,
        bytes that aren't text."""
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        expected = b"\n".join(draw.randbytes(size).replace(b"\n", b" ") for size in (0, 3, 70000, 2500000, 0, 1, 9))
        file = pathlib.Path(self.tmp) / "written"
        file.write_bytes(expected)
        script = f"test $OMPI_COMM_WORLD_RANK != 1 || cat {file}"
        done = subprocess.run([*HETURUN, "-w", "3", "--output", "raw", "sh", "-c", script], env=self.env, timeout=MANY,
                              capture_output=True, stdin=subprocess.DEVNULL)
        file.unlink()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout == expected, f"seed {seed}: {len(done.stdout)} bytes for {len(expected)}")

    def test_lines_of_several_workers_stay_whole(self):
        script = WRITER + ("\nfor i in range(300):\n"
                           "    for piece in ('', w * (i * 37 % 9000), '.\\n'): os.write(1, piece.encode())\n"
                           "os.write(1, b'end')")
        done = self.run_it("-w", "3", "--output", "raw", sys.executable, "-c", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = sorted([w * (i * 37 % 9000) + "." for w in "012" for i in range(300)] + ["end"] * 3)
        self.assertEqual(sorted(line for line in done.stdout.split("\n") if line), expected)


class Default(LaunchCase):
    def test_tags(self):
        """Output is raw if there is one worker. Standard error is always tagged."""
        for workers, how in itertools.product(("1", "2"), (None, "raw", "tagged")):
            with self.subTest(workers=workers, how=how):
                flags = ["--output", how] if how else []
                done = self.run_it("-w", workers, *flags, "sh", "-c", "echo out; echo err >&2")
                raw = how == "raw" or (how is None and workers == "1")
                self.assertEqual(sorted(done.stdout.splitlines()),
                                 ["out" if raw else f"[{w}] out" for w in range(int(workers))])
                self.assertEqual([line for line in sorted(done.stderr.splitlines()) if re.match(r"\[\d", line)],
                                 [f"[{w}] err" for w in range(int(workers))])

    def test_a_tag_names_the_host_where_there_are_several(self):
        self.assertEqual((output.tag(11), output.tag(11, "w0"), output.tag(11, "w0.cluster.example")),
                         (b"[11] ", b"[11@w0] ", b"[11@w0] "))

    def test_other_commands_of_hetu_write_in_every_worker(self):
        done = self.run_it("-w", "2", "hetu", "simulate", "gpipe", "--stages", "2",
                           "--micro-batches", "2", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(re.match(r"\[\d\] ", line) for line in done.stdout.splitlines()))

    def test_help_is_said_once(self):
        self.assertEqual(self.run_it("-w", "2", "hetu", "rehearse", "--help").stdout.count("usage"), 1)

    def test_a_wrong_choice_is_refused(self):
        done = self.run_it("-w", "2", "--output", "clean", "true")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "heturun: --output clean: it must be raw or tagged\n")


class Streams(LaunchCase):
    """Standard streams that are closed or full: the job's status is right, and a remaining stream reports the reason."""

    FULL = "standard output cannot be written: No space left on device"

    def shell(self, command, streams):
        """Runs a shell command with redirected streams. Returns (status, standard output, standard error)."""
        done = subprocess.run(["sh", "-c", f"exec {command} {streams}"], env=self.env, capture_output=True, text=True,
                              timeout=MANY)
        return done.returncode, done.stdout, done.stderr

    def heturun(self, command, streams):
        return self.shell(f"{' '.join(HETURUN)} {command}", streams)

    def test_closed_streams_are_no_fault_of_the_job(self):
        words = "-w 2 sh -c 'echo out; echo err >&2; exit 7'"
        for streams in ("<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            with self.subTest(streams=streams):
                status, out, error = self.heturun(words, streams)
                self.assertEqual(status, 7, error)
                self.assertEqual("out\n" in out, ">&-" not in streams.split(), out)
                if "2>&-" not in streams:
                    self.assertRegex(error, r"heturun: worker \d \(\S+, pid \d+\) exited with status 7")
                    self.assertEqual("standard output is closed: what workers write there is dropped\n" in error,
                                     ">&-" in streams)

    def test_a_full_standard_output_ends_the_job(self):
        status, _, error = self.heturun("-w 2 sh -c 'echo out; sleep 1000'", ">/dev/full")
        self.assertEqual(status, 4, error)
        self.assertIn(f"heturun: {self.FULL}; ending 2 workers\n", error)

    def test_a_full_standard_error_does_not(self):
        script = ("from hetu import progress\n"
                  "with progress.Reporter(2) as report: report.update(2, loss=1.0)\n"
                  "print('out')\n")
        file = pathlib.Path(self.tmp) / "script.py"
        file.write_text(script)
        self.addCleanup(lambda: file.exists() and file.unlink())
        for status in (0, 7):
            command = f"-w 2 sh -c '{sys.executable} {file}; echo err >&2; exit {status}'"
            self.assertEqual(self.heturun(command, "2>/dev/full")[::2], (status, ""))
        file.unlink()

    def test_help_and_version(self):
        for flag in ("--help", "--version"):
            self.assertEqual(self.heturun(flag, ">/dev/full"), (4, "", f"heturun: {self.FULL}\n"))
            self.assertEqual(self.heturun(flag, ">&-"), (0, "", ""))

    def test_the_tool_and_scripts(self):
        """A written file, or a socket, doesn't get the descriptor of a closed stream. Otherwise it would receive printed
        text."""
        self.env.pop("PYTHONUNBUFFERED", None)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        plan, script = pathlib.Path(folder.name) / "plan.txt", pathlib.Path(folder.name) / "script.py"
        script.write_text("import hetu as ht\nwith ht.one_line_errors('script.py'): print('lines' * 10)\n")
        schedule = "hetu schedule 1f1b --stages 2 --micro-batches 2"
        self.assertEqual(self.shell(schedule, ">/dev/full"), (2, "", "hetu schedule: standard output cannot be written\n"))
        self.assertEqual(self.shell(schedule, ">&-"), (2, "", "hetu schedule: standard output cannot be written\n"))
        self.assertEqual(self.shell(f"{schedule} -o {plan}", "<&- >&- 2>&-")[0], 0)
        whole = plan.read_bytes()
        self.assertEqual(self.shell(f"{schedule} -o {plan}", "")[0], 0)
        self.assertEqual(whole, plan.read_bytes())
        self.assertEqual(self.shell(f"{sys.executable} {script}", ">/dev/full"), (4, "", f"script.py: {self.FULL}\n"))
        self.assertEqual(self.shell(f"{sys.executable} {script}", ">&-"), (0, "", ""))
        sample = f"hetu data sample {folder.name}/set --kind cifar100 --classes 2 --train 1 --val 1"
        self.assertEqual(self.shell(sample, ">/dev/full"), (4, "", f"hetu data sample: {self.FULL}\n"))
        opens = ("import os, sys; from hetu import _hetu; f = open(sys.argv[1], 'w'); os.write(f.fileno(), b'kept'); "
                 "os.system('echo lost')")
        self.assertEqual(self.shell(f'{sys.executable} -c "{opens}" {plan}', ">&-")[0], 0)
        self.assertEqual(plan.read_text(), "kept")


if __name__ == "__main__":
    unittest.main()
