"""A copy of cmake/config.example.cmake, and `source hetu.exp`: the manual steps of SD-PIPE's README."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build"))
NOTHING = [f"-DHETU_{part}=OFF" for part in ("ZMQ", "HDF5", "CAIRO", "IMAGES", "PYTHON", "TESTS")]


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="hetu-config-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ConfigFile(Case):
    """The file is read from HETU_CONFIG, or by default from cmake/config.cmake. All tests configure one folder, so that
    CMake searches for the compiler once."""

    @classmethod
    def setUpClass(cls) -> None:
        build = tempfile.TemporaryDirectory(prefix="hetu-configured-")
        cls.addClassCleanup(build.cleanup)
        cls.build = pathlib.Path(build.name)

    def configure(self, text: str, *more: str) -> tuple[int, str]:
        config = self.folder / "config.cmake"
        config.write_text(text)
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.build, "-U", "MPI_*", "-U", "HETU_MPI",
                               f"-DHETU_CONFIG={config}", *NOTHING, *more], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def example(self) -> str:
        return (ROOT / "cmake" / "config.example.cmake").read_text()

    def test_the_example_as_it_stands(self) -> None:
        status, said = self.configure(self.example(), "-DHETU_MPI=OFF")
        self.assertEqual(status, 0, said)
        self.assertNotIn("hetu: MPI_HOME", said)

    @unittest.skipUnless(shutil.which("mpicxx"), "no Open MPI here")
    def test_a_path_is_used(self) -> None:
        place = self.folder / "openmpi"
        (place / "bin").mkdir(parents=True)
        for name in ("mpicxx", "mpiexec"):
            (place / "bin" / name).symlink_to(str(shutil.which(name)))
        line = "# hetu_path(MPI_HOME /opt/openmpi)\n"
        self.assertIn(line, self.example())
        status, said = self.configure(self.example().replace(line, f"hetu_path(MPI_HOME {place})\n"), "-DHETU_MPI=ON")
        self.assertEqual(status, 0, said)
        self.assertIn(f"hetu: MPI_HOME {place}", said)
        cache = (self.build / "CMakeCache.txt").read_text()
        found = [line for line in cache.splitlines() if line.startswith("MPI_CXX_COMPILER:")]
        self.assertEqual(found, [f"MPI_CXX_COMPILER:FILEPATH={place}/bin/mpicxx"])

    def test_a_path_that_is_not_there(self) -> None:
        status, said = self.configure("hetu_path(MPI_HOME /no/such/place)\n")
        self.assertNotEqual(status, 0)
        self.assertIn("gives MPI_HOME as /no/such/place, which does not exist", said)

    def test_what_is_given_by_hand_wins(self) -> None:
        status, said = self.configure("hetu_path(MPI_HOME /no/such/place)\n", "-DMPI_HOME=/", "-DHETU_MPI=OFF")
        self.assertEqual(status, 0, said)


class Exports(Case):
    """hetu.exp, in all installed shells."""

    def test_commands_and_import(self) -> None:
        script = self.folder / "hetu.exp"
        script.write_text((ROOT / "hetu.exp").read_text())
        for name in ("python", "build"):  # the tree as it is here, wherever it was built
            (self.folder / name).symlink_to({"python": ROOT / "python", "build": BUILD}[name])
        bare = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        for shell in ("bash", "zsh"):
            if not shutil.which(shell):
                continue
            for before in ("", "PYTHONPATH=/before; export PYTHONPATH; "):
                words = (f"{before}source {script}; source {script}; echo $PYTHONPATH; echo $PATH; command -v heturun; "
                         "python3 -c 'import hetu; print(hetu.__file__)'; set | grep ^hetu_")
                done = subprocess.run([shell, "-c", words], env=bare, cwd="/", capture_output=True, text=True, check=False)
                lines = done.stdout.splitlines()
                rest = ":/before" if before else ""
                self.assertEqual(lines[0], f"{self.folder}/python:{self.folder}/build/python{rest}", done.stderr)
                self.assertTrue(lines[1].startswith(f"{self.folder}/python:"), lines[1])
                self.assertEqual(lines[2:], [f"{self.folder}/python/heturun", f"{self.folder}/python/hetu/__init__.py"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
