#!/usr/bin/env python3
"""Checkpoints of hetu.torch: every damage is noticed, a kill leaves the old checkpoint or the new one, and a second job is
refused.

Skipped where PyTorch is not installed (`./run torch`). --whole kills more often. --seed N selects other bits and moments."""

import json
import random
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from torch_saved import HAS_TORCH, CheckpointCase, equal, values

HERE = Path(__file__).resolve().parent
WHOLE = "--whole" in sys.argv
SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 5
if HAS_TORCH:
    import torch
    from torch import nn

    import hetu.torch
    from hetu import _hetu


def started(action, folder, *arguments, workers=2):
    """Starts torch_checkpoint_worker.py."""
    script = HERE / "torch_checkpoint_worker.py"
    return subprocess.Popen(["heturun", "-w", str(workers), sys.executable, script, action, folder, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Damage(CheckpointCase):
    """Damaged files on disk give the saved values, or are refused."""

    def test_no_flipped_bit_is_loaded(self):
        """Flips bits in all files. Each file gets at least three flips, and others are spread over all bytes."""
        pipe, optimizer = self.made()
        pipe.save(self.folder, optimizer)
        want = values(pipe, optimizer)
        other, second = self.made(seed=2)
        before = values(other, second)
        draw = random.Random(SEED)
        files = sorted(path for path in self.step_folder().iterdir())
        places = [path for path in files for _ in range(3)] + draw.choices(files, [p.stat().st_size for p in files], k=60)
        refused = 0
        for path in places:
            kept = path.read_bytes()
            at, bit = draw.randrange(len(kept)), draw.randrange(8)
            path.write_bytes(kept[:at] + bytes([kept[at] ^ 1 << bit]) + kept[at + 1:])
            try:
                other.load(self.folder, second)
            except OSError as error:
                refused += 1
                self.assertNotIn("\n", str(error))
                same = equal(values(other, second), before)
                self.assertTrue(same, f"changed by a refused load: seed {SEED}, {path.name}, byte {at}")
            else:  # for example a space at the end of a header
                self.assertTrue(equal(values(other, second), want), f"seed {SEED}: {path.name}, bit {bit} of byte {at}")
                other, second = self.made(seed=2)
            path.write_bytes(kept)
        print(f"seed {SEED}: {refused} of {len(places)} flipped bits refused, the others change nothing", flush=True)
        self.assertGreater(refused, len(places) * 0.9)
        other.load(self.folder, second)
        self.assertTrue(equal(values(other, second), want))

    def test_files_that_are_cut_or_missing(self):
        pipe, optimizer = self.made()
        pipe.save(self.folder, optimizer)
        for path in sorted(self.step_folder().iterdir()):
            kept = path.read_bytes()
            for cut in (0, 5, len(kept) // 2, len(kept) - 2):
                path.write_bytes(kept[:cut])
                self.refused(path.name.split(".")[0], lambda: pipe.load(self.folder, optimizer))
            path.unlink()
            self.refused("holds no checkpoint" if path.name == "manifest.json" else path.name,
                         lambda: pipe.load(self.folder, optimizer))
            path.write_bytes(kept)
        pipe.load(self.folder, optimizer)

    def test_manifests_with_another_content_and_a_right_checksum(self):
        pipe, optimizer = self.made()
        pipe.save(self.folder, optimizer)
        path = self.step_folder() / "manifest.json"
        kept = path.read_text()

        def put(body, key, value):
            *above, last = key
            for one in above:
                body = body[one]
            body[last] = value

        cases = {("step",): ["x", -1, 1.5, None], ("run",): [None, {}, []], ("format",): [99, "x"],
                 ("run", "kind"): ["else"], ("run", "version"): [99], ("run", "optimizers"): [None, [], 3],
                 ("run", "more"): ["x"], ("run", "index"): ["x", 5],
                 ("tensors", 0, "dtype"): ["float33", "F64", 7], ("tensors", 0, "shape"): [[3], "x", [-1]],
                 ("tensors", 0, "name"): ["other", 3], ("tensors", 0, "file"): ["gone.safetensors", "../x", 3],
                 ("tensors", 0, "crc32c"): ["00000000", 7], ("tensors",): [[], None]}
        for key, wrong in cases.items():
            for value in wrong:
                with self.subTest(key=key, value=value):
                    body = json.loads(kept)["checkpoint"]
                    put(body, key, value)
                    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                    crc = f"{_hetu.crc32c(text.encode()):08x}"
                    path.write_text(json.dumps({"crc32c": crc, "checkpoint": body}))
                    # A missing tensor or another shape doesn't fit the model. All other changes are damage.
                    kind = (OSError, ValueError) if key[0] == "tensors" else OSError
                    message = self.refused(".", lambda: pipe.load(self.folder, optimizer), kind)
                    self.assertNotIn("its checksum is", message) if key != ("run", "index") else None
        path.write_text(kept)
        pipe.load(self.folder, optimizer)


class Commit(CheckpointCase):
    """Saves are exclusive and atomic."""

    def expect_one(self, most):
        """Checks that the folder holds the state of exactly one step. Returns the step."""
        pipe = hetu.torch.Pipeline([nn.Linear(64, 64) for _ in range(4)], nn.MSELoss(), "zb-v", 2)
        optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1, momentum=0.9)
        pipe.load(self.folder, optimizer)
        self.assertTrue(1 <= pipe.steps <= most)
        found = {float(v) for p in pipe.parameters() for v in p.detach().aminmax()}
        states = {float(v) for p in pipe.parameters() for v in optimizer.state[p]["momentum_buffer"].aminmax()}
        self.assertEqual(found, {float(pipe.steps)})
        self.assertEqual(states, found)
        return pipe.steps

    def test_a_kill_at_a_drawn_moment(self):
        reached = []
        for number in range(40 if WHOLE else 2):
            shutil.rmtree(self.folder, ignore_errors=True)
            job = started("killed", self.folder, SEED * 1000 + number)
            said, errors = job.communicate(timeout=200)
            self.assertNotEqual(job.returncode, 0)
            self.assertIn("saved", said, errors)
            reached.append(self.expect_one(10**6))
        print(f"seed {SEED}: killed while step N was saved, N = {reached}", flush=True)

    def test_a_worker_that_dies_before_it_has_written(self):
        """A worker dies before it has written its part. The parts of two trainings must not load together."""
        job = started("cut", self.folder)
        said, errors = job.communicate(timeout=200)
        self.assertNotEqual(job.returncode, 0, said + errors)
        self.assertEqual(self.expect_one(1), 1)

    def test_a_second_job(self):
        job = started("hold", self.folder)
        self.assertIn("saved", job.stdout.readline())
        self.assertIn("saved", job.stdout.readline())
        pipe, optimizer = self.made(norms=False)
        self.refused(r"process \d+ on host .* is saving there", lambda: pipe.save(self.folder, optimizer))
        Path(self.folder, "end").touch()
        self.assertEqual(job.wait(120), 0, job.stderr.read())
        for pipe_end in (job.stdout, job.stderr):
            pipe_end.close()
        self.expect_one(1)
        pipe.save(self.folder, optimizer)
        self.assertFalse(any("saving" in path.name for path in self.folder.iterdir()))

    def test_a_save_takes_the_place_of_the_one_before(self):
        """The last save counts, even if its step is lower."""
        for steps in (5, 3, 3, 9):
            pipe, optimizer = self.made(seed=2)
            pipe.steps = steps
            pipe.save(self.folder, optimizer)
            self.assertEqual(self.step_folder().name, f"step-{steps:08d}")
            other, second = self.made(seed=1)
            other.load(self.folder, second)
            self.assertTrue(equal(values(other, second), values(pipe, optimizer)))

    def test_memory(self):
        job = started("memory", self.folder)
        said, errors = job.communicate(timeout=200)
        self.assertEqual(said.count("MEMORY"), 2, said + errors)


if __name__ == "__main__":
    arguments = [word for word in sys.argv if word != "--whole"]
    if "--seed" in arguments:
        del arguments[arguments.index("--seed"):arguments.index("--seed") + 2]
    unittest.main(argv=arguments, verbosity=2)  # prints the reason for a skip
