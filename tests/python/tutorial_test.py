"""The tutorials, typed as a newcomer types them: their files written, their commands run, what they show compared."""
import re
import unittest

from typed_page import TypedPage


class Tutorial(TypedPage):
    """docs/tutorial.md."""

    def test_its_files_and_commands(self):
        printed = self.type_page("tutorial.md")
        found = {command: re.findall(r"step \d+: loss (\S+)", out) for command, out in printed.items()}
        trained = {command: losses for command, losses in found.items() if losses}
        self.assertEqual(len(trained), 4, printed)
        self.assertEqual(len({tuple(losses) for losses in trained.values()}), 1, trained)
        for command in trained:
            self.assertGreater(float(re.search(r"right: ([\d.]+)%", printed[command])[1]), 90, printed[command])
        self.assertRegex(printed["python3 use.py"], r"arms [01] [01]\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
