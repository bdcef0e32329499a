"""Optimizer states in bfloat16 in the scripts: saving, resuming, refused options, and the loss compared with float32.

usage: state_dtype_test.py [--whole]  (else a few steps of the sample)"""
import subprocess
import sys
import unittest

from prose_text import write_prose
from train_cases import HETURUN, ROOT, TrainCase, manifest_of, tensors

WHOLE = "--whole" in sys.argv
NARROW = ("--state-dtype", "bf16")
SECONDS = 1500


class StateDType(TrainCase):
    def hetu(self, *words, status=0):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=SECONDS, cwd=self.folder,
                              env=self.env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_what_is_saved_goes_on(self):
        """A training that is stopped at half and resumed under other stages has the same losses and the same bits. States
        take two bytes per element, and the output doesn't mention them."""
        whole, halves = self.folder / "whole", self.folder / "halves"
        once = self.train((1, 2), *NARROW, "--steps", 6, "--checkpoint", whole)
        self.train((1, 1), *NARROW, "--steps", 3, "--checkpoint", halves)
        done = self.train((1, 2), *NARROW, "--steps", 6, "--checkpoint", halves, "--resume")
        self.assertEqual(done.losses, once.losses[3:])
        self.assertNotIn("optimizer states", done.out)
        newest, manifest = manifest_of(whole)
        self.assertEqual(manifest["run"]["state_dtype"], "bf16")
        for row in manifest["tensors"]:
            self.assertEqual(row.get("dtype"), "bfloat16" if row["state"] else None, row)
        self.assertIn("equal, bit for bit", self.hetu("hetu", "checkpoint", "diff", whole, halves))
        size = sum(file.stat().st_size for file in newest.glob("*.safetensors"))
        numbers = sum(w.size for (_, state), w in tensors(whole).items() if not state)
        self.assertLess(size, numbers * (4 + 2 * 2) * 1.1)

    def test_the_other_dtype_goes_on(self):
        """One line reports the conversion. The first loss equals that of the saved run, and the next ones are near."""
        for saved, here, says in (("float32", "bf16", "with float32 optimizer states rounded to the nearest bf16"),
                                  ("bf16", "float32", "with bf16 optimizer states widened exactly to float32")):
            with self.subTest(saved=saved):
                folder, other = self.folder / saved, self.folder / f"{saved}-whole"
                whole = self.train((1, 1), "--state-dtype", saved, "--steps", 6, "--checkpoint", other)
                self.train((1, 1), "--state-dtype", saved, "--steps", 3, "--checkpoint", folder)
                done = self.train((1, 2), "--state-dtype", here, "--steps", 6, "--checkpoint", folder, "--resume")
                self.assertEqual([line for line in done.out.splitlines() if "optimizer states" in line],
                                 [f"[0] Resumed from {folder} at step 3, {says}"], str(done))
                self.assertEqual(done.losses[0], whole.losses[3])
                for loss, wanted in zip(done.losses, whole.losses[3:], strict=True):
                    self.assertAlmostEqual(loss, wanted, delta=0.01 * wanted)
                said = self.hetu("hetu", "checkpoint", "diff", other, folder, status=1)
                dtypes = "bfloat16 in the first, float32 in the second" if saved == "bf16" else \
                    "float32 in the first, bfloat16 in the second"
                self.assertIn(dtypes, said)

    def test_every_way_of_training(self):
        """Training equals one process, and works with K-FAC's inner optimizer and with pipelines that average weights."""
        done = self.train((1, 2), *NARROW, "--steps", 2, "--compare-single")
        self.assertIn("equal in 2 steps, bit for bit", done.out + done.err)
        saved = self.folder / "kfac"
        self.train((1, 2), *NARROW, "--optimizer", "kfac", "--steps", 3, "--checkpoint", saved)
        kept = {row["state"]: row.get("dtype", "float32") for row in manifest_of(saved)[1]["tensors"]}
        self.assertEqual(kept.pop("input_inverse"), "float32")
        self.assertEqual(kept.pop("gradient_inverse"), "float32")
        self.assertEqual(kept.pop(""), "float32")
        self.assertEqual(set(kept.values()), {"bfloat16"}, kept)

    def test_what_is_refused(self):
        self.refused((1, 1), *NARROW, "--optimizer", "sgd", "--steps", 1,
                     says="--state-dtype bf16 needs an optimizer with states, but sgd has none. Leave --state-dtype "
                          "bf16 out")
        self.refused((2, 1), *NARROW, "--sync-method", "ps", "--steps", 1,
                     says="--state-dtype bf16 needs updates by the workers, but parameter servers run the optimizer")
        done = self.run_job((1, 1), "--state-dtype", "half", "--steps", 1)
        self.assertNotEqual(done.code, 0, str(done))
        self.assertRegex(done.words()[-1], "float32'?, '?bf16")  # newer versions of Python write no quotes

    def test_the_sample_reaches_the_loss_of_float32(self):
        """The mean loss of BERT-tiny in the last fifth of the steps is within 2 %."""
        shards = self.folder / "shards"
        write_prose(self.folder / "text.txt", 60)
        self.hetu("hetu", "data", "sample", shards, *(() if WHOLE else ("--rows", 400, "--text", self.folder / "text.txt")))
        found = []
        for kept in ("float32", "bf16"):
            log = self.folder / f"{kept}.csv"
            self.hetu(*HETURUN, "-w", 1, sys.executable, ROOT / "python" / "train_bert.py", "--data", shards,
                      "--model", "tiny", "--batch-size", 32 if WHOLE else 16, "--micro-batches", 4, "--learning-rate", 1e-3,
                      "--warmup-steps", 20, "--pipeline", "1f1b", "--steps", 200 if WHOLE else 10, "--state-dtype", kept,
                      "--log", log)
            names, *rows = [line.split(",") for line in log.read_text().splitlines()]
            last = [float(row[names.index("loss")]) for row in rows][-max(1, len(rows) // 5):]
            found.append(sum(last) / len(last))
            print(f"states of {kept}: after {len(rows)} steps {found[-1]:.4f}", flush=True)
        self.assertAlmostEqual(found[1], found[0], delta=0.02 * found[0])


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a != "--whole"])
