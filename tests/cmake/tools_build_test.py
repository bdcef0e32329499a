"""A build without training (HETU_TRAINING=OFF) needs few packages and compiles only what the tools for schedules use. The
test configures such a build, and reads which files it would compile and link. The slow pip_test compiles it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Packages that CMake must not search for, and the libraries of training that must not be linked.
UNUSED = ("OneDNN", "OpenMP", "yaml-cpp", "MPI", "cppzmq", "HDF5", "JPEG", "PNG", "CUDAToolkit")
LINKED = re.compile(r"gomp|OpenCL|dnnl|yaml-cpp|utf8proc|zmq|hdf5|libmpi|libfmt|libspdlog|jpeg|opencv")
# The sources of the tools. `executor` and `ps`: only the order of sums, and the group log.
SOURCES = re.compile(r"base/|config/env|pipeline/|cli/|python/src/|executor/compile/sum_|ps/coordinator/group_log")


def configure(folder: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Configures a build of the tools in a folder."""
    words = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", folder, "-DHETU_TRAINING=OFF", "-DHETU_STATIC=ON",
             f"-DPython_EXECUTABLE={sys.executable}", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HETU_")}
    return subprocess.run(words, env=env, text=True, capture_output=True, check=False)


class ToolsBuild(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hetu-tools-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_it_compiles_and_links_only_its_parts(self) -> None:
        done = configure(self.folder, "-DHETU_CAIRO=OFF", *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in UNUSED))
        self.assertEqual(done.returncode, 0, done.stderr)
        build = pathlib.Path(self.folder)
        commands = json.loads((build / "compile_commands.json").read_text())
        self.assertNotIn("-fopenmp", " ".join(one["command"] for one in commands))
        files = [pathlib.Path(one["file"]) for one in commands]
        ours = {str(file.relative_to(ROOT)) for file in files
                if file.is_relative_to(ROOT) and not file.is_relative_to(build)}
        ours = {name for name in ours if not name.startswith(".venv/")}  # nanobind's own sources
        self.assertEqual([name for name in sorted(ours) if not SOURCES.match(name)], [])
        self.assertIn("cli/no_training.cpp", ours)
        links = [line for line in (build / "build.ninja").read_text().splitlines() if line.startswith("  LINK_LIBRARIES")]
        self.assertTrue(links)
        self.assertEqual([line for line in links if LINKED.search(line)], [])

    def test_parts_of_training_are_refused(self) -> None:
        for option in ("HETU_MPI=ON", "HETU_CUDA=ON", "HETU_TESTS=ON"):
            with self.subTest(option=option):
                done = configure(f"{self.folder}/{option}", f"-D{option}")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f"hetu: {option} needs training", done.stderr)


if __name__ == "__main__":
    unittest.main()
