"""Bad input to training: one clear error line, the matching exit status, and no partly written files.

`bad_input_test.py --whole` also runs under heturun the cases that are otherwise run in one process. A sample runs in both.
"""
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
import unittest

from train_cases import (
    HETURUN,
    MANY_S,
    MODEL,
    ROWS,
    TOKENS,
    VOCABULARY,
    TrainCase,
    checksums,
    columns,
    manifest_of,
    write_shard,
)

SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
WHOLE = "--whole" in sys.argv
ALONE, PAIR = (1, 1), (1, 2)
SHARD = "small_training_1.hdf5"


class Data(TrainCase):
    """Training data in which one of two shards is wrong."""

    PAIRED = ("test_truncated", "test_token_beyond_the_vocabulary", "test_other_sequence_length")

    def check(self, change, says, status=4):
        """Checks that training refuses a damaged copy of the data. `change` gets the path of the copy's second shard and its
        datasets."""
        copy = self.folder / "copy"
        shutil.copytree(self.data, copy)
        change(copy / SHARD, columns(ROWS, TOKENS, 3))
        grid = PAIR if WHOLE or self._testMethodName in self.PAIRED else ALONE
        done = self.refused(grid, "--data", copy, "--steps", 30, "--checkpoint", self.folder / "saved", status=status,
                            says=says)
        self.assertIn("train_bert.py: ", done.words()[0])
        saved = self.folder / "saved"
        if grid == ALONE:
            self.assertFalse(saved.exists())
        else:  # heturun may end the worker that has locked the folder before it unlocks it; nothing else may be there
            self.assertLessEqual({path.name for path in saved.glob("*")} if saved.exists() else set(), {".hetu-lock"})

    def test_no_folder(self):
        self.refused(PAIR, "--data", self.folder / "nowhere", status=4, says="nowhere: no such folder of BERT shards")

    def test_no_shards(self):
        self.refused((1, 1), "--data", self.folder, status=4, says="no training shards")

    def test_truncated(self):
        self.check(lambda path, _: os.truncate(path, os.path.getsize(path) // 2), f"{SHARD}: not a readable HDF5 file")

    def test_no_hdf5(self):
        self.check(lambda path, _: path.write_bytes(b"not at all" * 1000), f"{SHARD}: not a readable HDF5 file")

    def test_foreign_hdf5(self):
        self.check(lambda path, data: write_shard(path, {"images": data["input_ids"]}),
                   f"{SHARD}: has no dataset 'input_ids'")

    def test_other_sequence_length(self):
        self.check(lambda path, _: write_shard(path, columns(ROWS, 2 * TOKENS, 3)),
                   rf"{SHARD}: rows have {2 * TOKENS} tokens, expected {TOKENS}", status=2)

    def entry(self, name, value, says):
        def change(path, data):
            data[name].reshape(ROWS, -1)[17, 0] = value
            write_shard(path, data)

        self.check(change, says, status=2)

    def test_token_beyond_the_vocabulary(self):
        self.entry("input_ids", VOCABULARY, rf"{SHARD}: .*input_ids.*\b{VOCABULARY}\b")

    def test_label_beyond_the_vocabulary(self):
        self.entry("masked_lm_ids", VOCABULARY + 7, rf"{SHARD}: .*masked_lm_ids.*\b{VOCABULARY + 7}\b")

    def test_position_beyond_the_row(self):
        self.entry("masked_lm_positions", TOKENS, rf"{SHARD}: .*masked_lm_positions.*\b{TOKENS}\b")

    def test_label_out_of_range(self):
        self.entry("next_sentence_labels", 5, rf"{SHARD}: .*next_sentence_labels.*\b5\b")

    def test_longer_than_the_model(self):
        model = self.folder / "short.json"
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "max_position_embeddings": TOKENS // 2}))
        self.refused((1, 1), "--model", model, says=rf"{TOKENS} tokens per row, but the model only {TOKENS // 2} positions")


class Options(TrainCase):
    """Options that training can't satisfy."""

    def test_under_heturun(self):
        for number, (options, says) in enumerate([
            (("--batch-size", 10), "--batch-size 10 is not a multiple of --micro-batches 4"),
            (("--pipeline", "pipedream", "--micro-batches", 4),
             "'pipedream' updates 4 times per step of 4 micro-batches.* 1 micro-batch"),
            (("--staleness", 1),
             "--staleness 1 needs pipelines that share weights over servers.* Leave it out for '1f1b' on 1"),
            (("--pipeline", "1f2b"), "1f2b.*1f1b"),
            (("--pipeline", "gems", "--micro-batches", 1), "gems takes an even M >= 2 micro-batches, got M = 1"),
            (("--devices", "pipe_2_2"), r"pipe_2_2.*4.*2"),
            (("--devices", "nowhere"), "nowhere"),
            (("--memory-limit", "100KiB"), r"worker 0 .* needs \d+\.\d MiB \(\d+ bytes\), over the limit of 0\.1 MiB "
                                           r"\(102400 bytes\): weights"),
        ]):
            with self.subTest(options=options):
                refused = self.refused if WHOLE or number % 7 == 0 else self.refused_in_plan
                refused(PAIR, *options, "--steps", 1, says=says)

    def test_more_memory_than_the_machine_has(self):
        # The weights take terabytes. The plan shows this before any of them is allocated.
        model = self.folder / "model.json"
        model.write_text(json.dumps({**MODEL, "hidden_size": 1 << 18, "intermediate_size": 1 << 18}))
        since = time.monotonic()
        for grid, workers in (((1, 1), "1 worker;"), (PAIR, "2 workers;")):
            with self.subTest(grid=grid):
                self.refused(grid, "--model", model, "--steps", 1, "--checkpoint", self.folder / "saved",
                             says=rf"host \S+ has \d+\.\d GiB of memory, but the plan needs \d{{4,}}\.\d GiB there "
                                  rf"\({workers}")
        self.assertFalse((self.folder / "saved").exists())
        self.assertLess(time.monotonic() - since, MANY_S / 2)

    def test_alone(self):
        for options, says in [
            (("--model", "huge"), "'huge' is neither one of base, tiny, deep nor a JSON file"),
            (("--memory-limit", "lots"), "'lots' is not a size"),
            (("--optimizer", "adam2"), "--optimizer.*adam2.*--help"),
            (("--no-such-option",), "--no-such-option.*--help"),
            (("--steps", "0"), "--steps must be >= 1, got 0"),
            (("--learning-rate", "-1"), "rate.*-1"),
            (("--resume",), "--resume needs --checkpoint"),
            (("--trace", "run.svg"), r"--trace run\.svg: unknown suffix '\.svg'; known: \.json"),
            (("--log", "run.pdf"), r"--log run\.pdf: unknown suffix '\.pdf'; known: \.jsonl, \.json, \.csv"),
            (("--keep", "0", "--checkpoint", self.folder / "saved", "--steps", 1), "at least one checkpoint"),
        ]:
            with self.subTest(options=options):
                self.refused((1, 1), *options, says=says)
        self.assertFalse((self.folder / "saved").exists())

    def test_model_files(self):
        model = self.folder / "model.json"
        for text, says in [("{", r"model.json:1: not JSON"), ("[]", "model.json: holds no JSON object"),
                           ('{"hidden_size": "wide"}', "hidden_size is 'wide', expected int"),
                           ('{"num_attention_heads": 0}', "num_attention_heads must be >= 1, got 0"),
                           ('{"hidden_size": 30, "num_attention_heads": 4}', "30 is not divisible by 4"),
                           ('{"hidden_act": "mish"}', "'mish' is not known"),
                           ('{"model_type": "roberta"}', "model_type 'roberta' is not supported"),
                           ('{"embedding_size": 128}', "does not know.* embedding_size = 128")]:
            with self.subTest(text=text):
                model.write_text(text)
                self.refused((1, 1), "--model", model, "--steps", 1, says=says)

    def test_cluster_files(self):
        good = "nodes:\n  - host: localhost\n    workers: 1\n    chief: true\n"
        for text, says in [(good.replace("workers", "wrokers"), r"cluster.yml:3: .*wrokers"),
                           (good + good[len("nodes:\n"):].replace("localhost", "other"), "cluster.yml.*chief")]:
            with self.subTest(text=text):
                file = self.folder / "cluster.yml"
                file.write_text(text)
                done = subprocess.run([*HETURUN, "-c", str(file), "true"], env=self.env, capture_output=True, text=True,
                                      timeout=MANY_S)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, rf"\Aheturun: .*{says}.*\n\Z")
                self.assertEqual(done.stdout, "")


class Numbers(TrainCase):
    """Losses that are not finite."""

    def test_nan_is_named(self):
        saved = self.folder / "saved"
        done = self.refused(PAIR, "--learning-rate", "1e15", "--warmup-steps", 0, "--steps", 9, "--checkpoint", saved,
                            says=r"loss is -?(nan|inf) at stage 1, micro-batch \d, step [1-8]; lower the learning rate")
        self.assertTrue(all(map(math.isfinite, done.losses)), done.losses)
        self.assertEqual(list(saved.glob("*step-*")), [])  # the folder itself is created and locked at the start


class Disk(TrainCase):
    """Saving to a full disk, and reading changed files."""

    def small(self, size):
        """Returns the mount point of a file system of `size` bytes. Skips the test where none can be mounted."""
        place = self.folder / "small"
        place.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True,
                                 text=True)
        if mounted.returncode:
            self.skipTest(f"no small file system can be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", str(place)], check=True)
        return place

    def test_full(self):
        saved = self.small("900k") / "saved"  # room for one checkpoint, not for two
        done = self.refused(PAIR, "--steps", 4, "--save-every", 1, "--checkpoint", saved, status=4,
                            says="saving step 2 failed: .*No space left on device")
        self.assertEqual(done.steps, [0, 1])
        self.assertEqual(os.listdir(saved), ["step-00000001"])
        self.train((1, 1), "--steps", 1, "--checkpoint", saved, "--resume", "--keep", "1")

    def test_full_for_what_is_written_beside_it(self):
        """A full disk leaves earlier checkpoints intact, and training continues from them."""
        place = self.small("8k")  # two pages
        events = place / "runs"
        for option, value, names, steps, sample in (("--trace", place / "run.json", "run.json", 12, PAIR),
                                                    ("--log", place / "log.jsonl", "log.jsonl", 100, ALONE),
                                                    ("--name", events, r"runs/events\.out\.tfevents\S+", 4, PAIR)):
            for grid in (ALONE, PAIR) if WHOLE else (sample,):
                with self.subTest(option=option, grid=grid):
                    saved = self.folder / f"saved{option}{grid[1]}"
                    if value == events:
                        (place / "full").write_bytes(b"0" * 8192)
                    self.refused(grid, "--steps", steps, "--save-every", 4, "--checkpoint", saved, option, value,
                                 status=4, says=f"{place}/{names}: .*No space left on device")
                    if value != events:  # the TensorBoard folder already fails at the start
                        step = manifest_of(saved)[1]["step"]
                        self.assertEqual(step % 4, 0)
                        self.train((1, 1), "--steps", step + 1, "--checkpoint", saved, "--resume")
                    shutil.rmtree(events, ignore_errors=True)
                    for file in place.iterdir():
                        file.unlink()

    def test_too_large_a_file(self):
        saved = self.folder / "saved"
        self.train(PAIR, "--steps", 1, "--checkpoint", saved)
        before = checksums(saved)
        self.refused((1, 1), "--steps", 2, "--checkpoint", saved, "--resume", status=4,
                     says="saving step 2 failed: .*File too large", before=("prlimit", "--fsize=100000"))
        self.assertEqual(os.listdir(saved), ["step-00000001"])
        self.assertEqual(checksums(saved), before)

    def test_no_place_for_checkpoints(self):
        file = self.folder / "file"
        file.write_text("")
        self.refused((1, 1), "--steps", 1, "--checkpoint", file / "saved", status=4, says="is not a writable folder")

    def test_flipped_byte(self):
        draw = random.Random(SEED)
        saved = self.folder / "saved"
        self.train(PAIR, "--steps", 1, "--checkpoint", saved)
        for name in ("stage-0.safetensors", "stage-1.safetensors", "manifest.json"):
            path = saved / "step-00000001" / name
            whole = path.read_bytes()
            at = len(whole) - 1 - draw.randrange(len(whole) // 4)  # beyond the padding of the header
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1:])
            with self.subTest(name=name, at=at, seed=SEED):
                grid = PAIR if WHOLE or name == "stage-1.safetensors" else ALONE
                self.refused(grid, "--steps", 2, "--checkpoint", saved, "--resume", status=4, says=rf"{name}: .*damaged")
            path.write_bytes(whole)
        os.truncate(path := saved / "step-00000001" / "stage-0.safetensors", 5000)
        self.refused(PAIR, "--steps", 2, "--checkpoint", saved, "--resume", status=4,
                     says=rf"{path.name}: .*file of 5000; .*damaged")


if __name__ == "__main__":
    print(f"random seed {SEED}; TRAIN_TEST_SEED sets it", file=sys.stderr)
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)
