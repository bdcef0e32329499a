"""docs/tutorial.md as a new user follows it: the test writes its files, runs its commands, and checks its claims."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
OF_THE_TREE = ("./run ", "source ")  # commands that build the tree; the test skips them


class Tutorial(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-tutorial-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def type(self, command):
        environment = dict(os.environ, PYTHONPATH=os.environ.get("PYTHONPATH", "") + os.pathsep + ".")
        return subprocess.run(command, shell=True, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=300)

    def test_its_files_and_commands(self):
        said = {}
        blocks = re.findall(r"^```(python|sh|said) ?(\S*)\n(.*?)^```", PAGE, re.M | re.S)
        (reason,) = [text for language, _, text in blocks if language == "said"]
        for language, name, text in blocks:
            if language == "python":
                with open(self.folder / name, "a", encoding="utf-8") as file:
                    file.write(text)
        for language, name, text in blocks:
            for line in text.splitlines() if language == "sh" else []:
                if line.startswith(OF_THE_TREE):
                    continue
                command = line.split("  #")[0].rstrip()
                done = self.type(command)
                said[command] = done.stdout
                refused = name == "refused"
                self.assertEqual(done.returncode, int(refused), f"{command}\n{done.stdout}{done.stderr}")
                if refused:
                    self.assertIn(reason, re.sub(r"^\[\d\] ", "", done.stderr, flags=re.M))
        found = {command: re.findall(r"step \d+: loss (\S+)", out) for command, out in said.items()}
        trained = {command: losses for command, losses in found.items() if losses}
        self.assertEqual(len(trained), 4, said)
        self.assertEqual(len({tuple(losses) for losses in trained.values()}), 1, trained)
        for command in trained:
            self.assertGreater(float(re.search(r"right: ([\d.]+)%", said[command])[1]), 90, said[command])
        self.assertRegex(said["python3 use.py"], r"arms [01] [01]\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
