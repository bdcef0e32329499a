"""hetu.launch.slurm: lists of hosts and of tasks in Slurm's notation."""
import os
import random
import sys
import time
import unittest

from hetu.launch import slurm

SEED = int(os.environ.get("SLURM_TEST_SEED", time.time_ns() % 100000))

# Lists as in Slurm's manuals, with the hosts that they name.
KNOWN = {
    "w0": ["w0"],
    "w[0-1]": ["w0", "w1"],
    "linux[00-03,7]": ["linux00", "linux01", "linux02", "linux03", "linux7"],
    "n[8-11]": ["n8", "n9", "n10", "n11"],
    "n[008-010]": ["n008", "n009", "n010"],
    "rack[0-1]n[1,3]": ["rack0n1", "rack0n3", "rack1n1", "rack1n3"],
    "a-1,b.c[2-3]-ib,d_4": ["a-1", "b.c2-ib", "b.c3-ib", "d_4"],
    "w[5]": ["w5"],
}
WRONG = ["", ",", "w0,", "w[", "w]", "w[]", "w[1-]", "w[3-1]", "w[-1]", "w[a]", "w0 w1", "w[0-1", "w[0-1]]", "w;true", "-w",
         "w[1-999999]", "[1-65536],x[1-9]"]


class Lists(unittest.TestCase):
    def test_known(self):
        for text, hosts in KNOWN.items():
            with self.subTest(text=text):
                self.assertEqual(slurm.expand(text), hosts)

    def test_any_set_of_hosts_comes_back(self):
        draw = random.Random(SEED)
        for case in range(200):
            width, text, hosts = draw.choice((0, 3, 5)), [], []
            for rack in range(draw.randint(1, 3)):
                start, ranges = 0, []
                for _ in range(draw.randint(1, 4)):
                    first = start + draw.randint(0, 40)
                    last = first + draw.choice((0, 0, 1, 7, 120))
                    ends = [str(n).zfill(width) for n in range(first, last + 1)]
                    ranges.append(ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}")
                    hosts += [f"r{rack}-{end}" for end in ends]
                    start = last + 1
                text.append(f"r{rack}-[{','.join(ranges)}]")
            with self.subTest(case=case, seed=SEED, text=text):
                self.assertEqual(slurm.expand(",".join(text)), hosts)

    def test_wrong(self):
        for text in WRONG:
            with self.subTest(text=text), self.assertRaisesRegex(slurm.SlurmError, "^SLURM_JOB_NODELIST: "):
                slurm.expand(text)

    def test_counts(self):
        self.assertEqual(slurm.counts("2"), [2])
        self.assertEqual(slurm.counts("2(x3),1,4(x2)"), [2, 2, 2, 1, 4, 4])
        for text in ("", "2(x", "2(3)", "x", "-1", "2,", "1(x99999),1(x99999)"):
            with self.subTest(text=text), self.assertRaisesRegex(slurm.SlurmError, "^SLURM_TASKS_PER_NODE: "):
                slurm.counts(text)


class Allocation(unittest.TestCase):
    def test_nodes(self):
        self.assertIsNone(slurm.allocation({}))
        nodes = slurm.allocation({"SLURM_JOB_NODELIST": "w[0-2]", "SLURM_TASKS_PER_NODE": "8(x2),4"})
        self.assertEqual([(n["host"], n["workers"], n["servers"], n["chief"]) for n in nodes],
                         [("w0", 8, 0, True), ("w1", 8, 0, False), ("w2", 4, 0, False)])
        self.assertEqual([n["workers"] for n in slurm.allocation({"SLURM_NODELIST": "a,b"})], [1, 1])

    def test_wrong(self):
        for nodes, tasks, says in (("w[0-2]", "8(x2)", "is for 2 hosts, SLURM_JOB_NODELIST names 3"),
                                   ("w0,w[0-1]", "1(x3)", "names w0 twice")):
            with self.assertRaisesRegex(slurm.SlurmError, says):
                slurm.allocation({"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks})


if __name__ == "__main__":
    print(f"random seed {SEED}; SLURM_TEST_SEED sets it", file=sys.stderr)
    unittest.main(verbosity=2)
