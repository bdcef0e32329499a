"""An installed Hetu works: C++ programs and Python outside the tree make, verify and simulate plans, and programs train.
Without options, the test uses `cmake --install` of this build. With --pip, it uses `pip install .` in a new environment.
With --wheel FOLDER, it installs the wheel in this folder, and prints times."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build"))
EXAMPLES = ROOT / "docs" / "examples"
# 1F1B over 4 stages with 8 micro-batches: 8 + 4 - 1 slots of 1 + 2, of which 4 - 1 are idle; worker 0 holds 4.
PEAK, MAKESPAN, BUBBLE = 4, 33, 3 / 11
PLAN = f"""
import sys
from hetu import schedule
plan = schedule.generate("1f1b", stages=4, micro_batches=8)
assert schedule.verify(plan)["peak_activations"][0] == {PEAK}
figures = schedule.simulate(plan)
assert figures["makespan"] == {MAKESPAN} and abs(figures["bubble_fraction"] - {BUBBLE}) < 1e-12, figures
assert schedule.render(plan).count("\\n") >= 4
assert not {{"numpy", "h5py", "mpi4py"}} & set(sys.modules), sorted(sys.modules)
print(schedule.__file__)
"""


# The error of everything that needs training.
REFUSED = (r"needs training, but this installation has only the tools for schedules; "
           r"build Hetu from its sources with ./run install")


def outside() -> dict[str, str]:
    """Returns the environment without variables that lead back into the tree."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HETU_", "VIRTUAL_ENV"))}


class Installed(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hetu-package-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def words(self, *words: object, env: dict[str, str] | None = None) -> str:
        """Returns the output of a command, which must succeed."""
        done = subprocess.run([str(w) for w in words], cwd=self.folder, env={**outside(), **(env or {})}, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, *words: object, status: int) -> str:
        """Returns the one line with which a command fails."""
        done = subprocess.run([str(w) for w in words], cwd=self.folder, env=outside(), text=True, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (status, 1), done.stdout + done.stderr)
        return done.stderr

    def tool_works(self, tool: pathlib.Path) -> None:
        version = re.search(r"project\(hetu VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
        assert version is not None
        self.assertEqual(self.words(tool, "--version"), f"hetu {version[1]}\n")
        plan = self.folder / "plan.csv"
        plan.write_text(self.words(tool, "schedule", "zb-h1", "--stages", 4, "--micro-batches", 8, "--format", "csv"))
        self.words(tool, "verify", plan)
        plan.write_text("")
        self.assertIn("plan.csv", self.refused(tool, "verify", plan, status=2))

    def python_works(self, *python: object, env: dict[str, str] | None = None) -> None:
        """Checks that `python` imports the package of this folder, without NumPy, MPI or HDF5."""
        self.assertTrue(self.words(*python, "-c", PLAN, env=env).startswith(str(self.folder)))


class Prefix(Installed):
    """`cmake --install build --prefix P`."""

    def test_cpp_python_and_tool_work_from_a_prefix(self) -> None:
        prefix = self.folder / "prefix"
        self.words("cmake", "--install", BUILD, "--prefix", prefix)
        for kind in ("*.cmake", "*.py"):  # files that are read later must not refer to the tree
            for file in prefix.rglob(kind):
                self.assertNotIn(str(ROOT), file.read_text(), file)
        for linked in (prefix / "bin" / "hetu", *prefix.rglob("*.so*")):  # nor may paths of the loader
            self.assertNotIn(str(ROOT / ".venv").encode(), linked.read_bytes(), linked)
        for module in prefix.rglob("_hetu.*.so"):
            self.assertTrue((module.parent / "mpirun_ports.so").exists(), module)
        programs = self.build(prefix, {"plan": "hetu::pipeline", "train": "hetu::executor", "own_rows": "hetu::executor",
                                       "sum_vectors": "hetu::parameter_client"})
        self.assertEqual(self.words(programs / "plan" / "plan"),
                         f"peak {PEAK} micro-batches, makespan {MAKESPAN}, bubble {BUBBLE:.4f}\n")
        self.tool_works(prefix / "bin" / "hetu")
        self.a_program_trains(programs / "train" / "train")
        self.words(programs / "own_rows" / "own_rows", "model", 1)  # docs/tutorial-cpp.md
        self.assertRegex(self.words(programs / "own_rows" / "own_rows", "model"), r"^(39\d|400) of 400 points right\n$")
        self.a_client_stands_alone(prefix, programs / "sum_vectors" / "sum_vectors")
        self.heturun_starts(prefix)
        for site in prefix.glob("lib*/python*/site-packages"):  # if the build has the module
            self.python_works(sys.executable, env={"PYTHONPATH": str(site)})
            for typed in ("hetu/py.typed", "hetu-stubs/py.typed", "hetu-stubs/ops.pyi", "hetu-stubs/job/executor.pyi"):
                self.assertTrue((site / typed).is_file(), typed)
            page = ROOT / "python" / "hetu" / "launch" / "page"  # of heturun watch
            self.assertEqual({file.name for file in (site / "hetu" / "launch" / "page").iterdir()},
                             {file.name for file in page.iterdir()})
        self.finds_what_it_opens(prefix)

    def finds_what_it_opens(self, prefix: pathlib.Path) -> None:
        """Checks that the tool and the Python module find the module of OpenCV, also after the prefix was moved."""
        if not (BUILD / "lib" / "libhetu_opencv.so").exists():
            return
        moved = prefix.rename(self.folder / "moved")
        images = self.folder / "images" / "a"
        images.mkdir(parents=True)
        (images / "1.ppm").write_bytes(b"P6 1 1 255\n\1\2\3")
        self.assertIn("0 cannot be read", self.words(moved / "bin" / "hetu", "data", "check", images.parent))
        reads = ("import sys; from hetu import data; "
                 "data.ImageFolder(sys.argv[1], 1, size=1).loader(1, 0, ['image']).next()")
        for site in moved.glob("lib*/python*/site-packages"):
            self.words(sys.executable, "-c", reads, images.parent, env={"PYTHONPATH": str(site)})

    def build(self, prefix: pathlib.Path, examples: dict[str, str]) -> pathlib.Path:
        """Builds the examples' programs, each with its own target as in the docs, and returns the build folder. They are in
        one project, so that CMake searches for the compiler once."""
        text = (EXAMPLES / "CMakeLists.txt").read_text()
        self.assertIn("PRIVATE hetu::pipeline", text)
        for name, target in examples.items():
            (self.folder / name).mkdir()
            (self.folder / name / "CMakeLists.txt").write_text(text.replace("hetu::pipeline", target).replace("plan", name))
            (self.folder / name / f"{name}.cpp").write_bytes((EXAMPLES / f"{name}.cpp").read_bytes())
        parts = "".join(f"add_subdirectory({name})\n" for name in examples)
        (self.folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(all CXX)\n{parts}")
        self.words("cmake", "-S", ".", "-B", "programs", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.words("cmake", "--build", "programs")
        return self.folder / "programs"

    def a_program_trains(self, program: pathlib.Path) -> None:
        """Checks that the loss of the README's program falls."""
        losses = [float(x) for x in re.findall(r"^step \d+ loss ([\d.]+)$", self.words(program), re.M)]
        self.assertGreaterEqual(len(losses), 2)
        self.assertLess(losses[-1], losses[0] / 2)

    def a_client_stands_alone(self, prefix: pathlib.Path, program: pathlib.Path) -> None:
        """Checks a program that links only the parameter-server client of Hetu."""
        keys = self.folder / "job.keys"
        words = [prefix / "bin" / "hetu", "ps", "serve", "--listen", f"ipc://{self.folder}/server", "--keys", keys]
        with subprocess.Popen([str(w) for w in words], env=outside(), stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                if "listens at" in server.stdout.readline():
                    self.assertEqual(self.words(program, keys, 0, 1), "member 0: 3 … 3\n")
                else:  # a build without ZeroMQ
                    self.assertIn("ZeroMQ", self.refused(program, "ipc:///x@" + "0" * 192, 0, 1, status=3))
            finally:
                server.terminate()

    def heturun_starts(self, prefix: pathlib.Path) -> None:
        """Checks the installed heturun with a shipped cluster file: its workers import the installed package, and a C++
        program trains in two."""
        heturun = prefix / "bin" / "heturun"
        if not heturun.exists():  # the build has no Python
            return
        paths = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        said = self.words(heturun, "-c", "local", "python3", "-c", "import hetu; print(hetu.__file__)", env=paths)
        self.assertEqual(set(re.findall(r"^\[\d\] (.*)$", said, re.M)),
                         {str(next(prefix.glob("lib*/python*/site-packages")) / "hetu" / "__init__.py")})
        trains = self.folder / "programs" / "train" / "train"
        said = self.words(heturun, "-w", 2, trains, 2, self.folder / "model", env=paths)
        self.assertEqual(said.count("of the first of [3, 10]\n"), 1, said)  # it also predicts
        losses = [float(x) for x in re.findall(r"step \d+ loss ([\d.]+)$", said, re.M)]
        self.assertLess(losses[-1], losses[0] / 2)

    def test_every_header_is_there_with_what_it_includes(self) -> None:
        prefix = self.folder / "prefix"
        self.words("cmake", "--install", BUILD, "--prefix", prefix, "--component", "cpp")
        include = prefix / "include" / "hetu"
        headers = [h for h in include.rglob("*.h")]
        self.assertGreater(len(headers), 50)
        for header in headers:
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', header.read_text(), re.M):
                self.assertTrue((include / name).is_file(), f"{header.relative_to(include)} includes {name}")

    def test_what_is_missing_is_named_in_one_line(self) -> None:
        configure = ["cmake", "-S", str(ROOT), "-B", "lacking", "-DHETU_TESTS=OFF", "-DHETU_PYTHON=OFF",
                     "-DCMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_OneDNN=ON"]
        done = subprocess.run(configure, cwd=self.folder, env=outside(), text=True, capture_output=True, check=False)
        lines = [line for line in done.stderr.splitlines() if "missing" in line]
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].endswith(": libyaml-cpp-dev libdnnl-dev"), lines[0])


class Tools(Installed):
    """An installation of the tools for schedules, without training, in a new environment."""

    def environment(self) -> pathlib.Path:
        """Makes the environment, and returns its Python."""
        self.words(sys.executable, "-m", "venv", self.folder / "venv")
        return self.folder / "venv" / "bin" / "python3"

    def timed(self, *words: object) -> str:
        """Returns the output of a command, and prints the time that it took."""
        begun = time.monotonic()
        said = self.words(*words)
        print(f"{time.monotonic() - begun:7.2f} s  {' '.join(str(word).replace(f'{self.folder}/', '') for word in words)}")
        return said

    def schedules_work(self, python: pathlib.Path) -> None:
        """Checks the commands and the modules for schedules, each without NumPy."""
        tool = python.parent / "hetu"
        self.assertIn("makespan", self.timed(tool, "simulate", "zb-v", "--stages", 4, "--micro-batches", 8))  # README's line
        self.timed(tool, "--help")
        self.timed(tool, "verify", "zb-v", "--stages", 4, "--micro-batches", 8)
        self.timed(tool, "simulate", "1f1b", "--stages", 4, "--micro-batches", 8, "-o", "plan.svg")
        self.assertIn("<svg", (self.folder / "plan.svg").read_text())
        block = {"forward": 10, "input_grad": 10, "weight_grad": 10}
        (self.folder / "costs.json").write_text(json.dumps({"unit": "ms", "stages": [{}], "blocks": [block] * 8,
                                                            "samples_per_micro_batch": 1}))
        said = self.timed(tool, "plan", "--costs", "costs.json", "--workers", 4, "--global-batch", 16)
        self.assertIn("proved", said)
        self.timed(python, "-c", "import hetu")
        self.timed(python, "-c", "from hetu import schedule; schedule.generate('1f1b', stages=4, micro_batches=8)")
        self.assertIn("F0", self.words(tool, "schedule", "gpipe", "--stages", 2, "--micro-batches", 2))
        (self.folder / "mine.py").write_text("def rows(stages, micro_batches):\n    return [['0F0', '0B0']]\n")
        self.words(tool, "verify", "mine:rows", "--stages", 1, "--micro-batches", 1)
        self.assertEqual(self.words(tool, "genschedule", 1, 1, 0), "0,0;2,0;\n")
        self.assertIn("works   Python", self.words(tool, "doctor"))

    def training_is_refused(self, python: pathlib.Path) -> None:
        """Checks that everything that needs training says so in one line, with the remedy."""
        tool = python.parent / "hetu"
        for words in (("data", "check", "x"), ("data", "sample", "x"), ("rehearse", "1f1b"), ("profile", "x.py"),
                      ("checkpoint", "show", "x"), ("ps", "status", "x")):
            self.assertRegex(self.refused(tool, *words, status=3), f"^hetu {words[0]}.*: this command {REFUSED}")
        for line in ("import hetu.torch", "import hetu; hetu.placeholder('x', (4,))",
                     "from hetu import models; models.Bert()"):
            done = subprocess.run([python, "-c", line], cwd=self.folder, env=outside(), text=True, capture_output=True,
                                  check=False)
            self.assertRegex(done.stderr.splitlines()[-1], REFUSED, line)
        self.words(python, "-c", "import hetu; assert not hasattr(hetu, 'Schedulr')")  # a misspelt name is still one


class Pip(Tools):
    """`pip install .`, which compiles in build-pip."""

    def test_schedule_and_tool_work_in_a_new_environment(self) -> None:
        python = self.environment()
        requires = re.search(r"^requires = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.M)
        assert requires is not None
        try:
            self.words(python, "-m", "pip", "install", "-q", *re.findall(r'"([^"]+)"', requires[1]))
        except AssertionError as error:
            self.skipTest(f"skipped: pip cannot fetch {requires[1]}, no network? {str(error).splitlines()[-1]}")
        self.words(python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-C",
                   f"build-dir={ROOT / 'build-pip'}", ROOT)
        self.words(python, "-m", "pip", "uninstall", "-q", "-y", "nanobind", "scikit-build-core")  # not needed to run
        self.python_works(python)
        self.tool_works(python.parent / "hetu")
        self.schedules_work(python)
        self.training_is_refused(python)


class Wheel(Tools):
    """The wheel that `./run wheel` made, installed from its folder, without PyPI."""

    dist = pathlib.Path()

    def test_the_wheel_works_in_a_new_environment(self) -> None:
        python = self.environment()
        self.timed(python, "-m", "pip", "install", "-q", "--no-index", "--find-links", self.dist.resolve(), "hetu-pipelines")
        self.python_works(python)
        self.tool_works(python.parent / "hetu")
        self.schedules_work(python)
        self.training_is_refused(python)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--wheel"]:
        Wheel.dist = pathlib.Path(sys.argv[2])
    chosen = {"--pip": "Pip", "--wheel": "Wheel"}.get("".join(sys.argv[1:2]), "Prefix")
    unittest.main(defaultTest=chosen, argv=sys.argv[:1], verbosity=2)
