"""OpenMP threads of a process that imports hetu spin briefly before they sleep, as the library itself reports."""
import os
import re
import subprocess
import sys
import unittest

SCRIPT = "import os\nfrom hetu import _hetu\nprint('left:', os.environ.get('GOMP_SPINCOUNT'))\n"


class Spin(unittest.TestCase):
    def told(self, **given):
        """Returns (spin count of GCC's library, the value that remains in the script's environment)."""
        env = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env={**env, **given, "OMP_DISPLAY_ENV": "verbose"},
                              capture_output=True, text=True, check=True)
        rounds = re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
        if not rounds:
            self.skipTest("the OpenMP library here is not GCC's, or says nothing of its rounds")
        return int(rounds[1]), re.search(r"left: (\w+)", done.stdout)[1]

    def test_briefly(self):
        self.assertEqual(self.told(), (1000, "None"))

    def test_what_the_user_chose(self):
        self.assertEqual(self.told(GOMP_SPINCOUNT="7"), (7, "7"))
        self.assertEqual(self.told(OMP_WAIT_POLICY="passive"), (0, "None"))
        self.assertGreater(self.told(OMP_WAIT_POLICY="active")[0], 1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
