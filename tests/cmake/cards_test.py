"""GPU architectures that nvcc compiles for by default, tested with stand-ins for nvidia-smi and nvcc."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["HETU_SOURCE_DIR"])
NEW = ("80", "86", "89", "90", "100", "103", "120")
OLD = ("50", "80", "86", "89", "90")


def written(path: Path, lines: list[str], status: int = 0) -> None:
    path.write_text("\n".join(["#!/bin/sh", *(f"echo {line}" for line in lines), f"exit {status}", ""]))
    path.chmod(0o755)


class Cards(unittest.TestCase):
    def chosen(self, cards: list[str] | None, known: tuple[str, ...], status: int = 0) -> tuple[str, str]:
        """Returns (chosen architectures, other messages). `cards` is the output of nvidia-smi, or None without nvidia-smi.
        """
        with tempfile.TemporaryDirectory(prefix="hetu-cards-") as name:
            folder = Path(name)
            if cards is not None:
                written(folder / "nvidia-smi", cards, status)
            written(folder / "nvcc", [f"compute_{one}" for one in known])
            script = folder / "script.cmake"
            script.write_text(f'set(CUDAToolkit_NVCC_EXECUTABLE "{folder}/nvcc")\nset(CMAKE_SYSTEM_PROGRAM_PATH "")\n'
                              f'set(CMAKE_PROGRAM_PATH "")\ninclude("{SOURCE}/cmake/HetuCards.cmake")\nhetu_cards(found)\n'
                              'message(STATUS "chosen ${found}")\n')
            done = subprocess.run(["cmake", "-P", str(script)], env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
                                  capture_output=True, text=True, check=True)
        *said, last = done.stdout.splitlines()
        return last.removeprefix("-- chosen "), "\n".join(said)

    def test_the_cards_that_are_here(self) -> None:
        for cards, known, want in ((["9.0"], NEW, "90"), (["8.0"], NEW, "80"), (["9.0", "9.0", "8.6"], NEW, "90;86"),
                                   (["10.3"], NEW, "103"), (["12.1"], NEW, "120"), (["10.0"], OLD, "90")):
            with self.subTest(cards=cards, known=known):
                self.assertEqual(self.chosen(cards, known), (want, ""))

    def test_none_that_kernels_are_for(self) -> None:
        self.assertEqual(self.chosen(["'No devices were found'"], NEW), ("90", ""))
        self.assertEqual(self.chosen(["Failed to initialize NVML", "NVML library version: 535.183"], NEW, 18), ("90", ""))
        found, said = self.chosen(["7.5", "8.9"], NEW)
        self.assertEqual(found, "89")
        self.assertIn("ignored a GPU of compute capability 75; the CUDA kernels need 80 or later", said)
        self.assertEqual(self.chosen(["7.5"], OLD)[0], "90")

    @unittest.skipIf(any((Path(folder) / "nvidia-smi").exists() for folder in os.environ["PATH"].split(":")),
                     "nvidia-smi is here")
    def test_no_nvidia_smi(self) -> None:
        self.assertEqual(self.chosen(None, NEW), ("90", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
