"""Generated tokens equal those of transformers (tests/fixtures/models.json), with and without a cache, and when sampled.
Each error is one line."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import numpy as np

import generate_cases as cases
import hetu as ht
import model_cases
import model_hetu
from weight_files import HETU, write

FIXTURE = json.loads((pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "models.json").read_text())


def imported(folder, family, config):
    """Returns (model, checkpoint of its seeded weights)."""
    model = model_hetu.model_of(family, config)
    weights = model_cases.weights({n: tuple(p.shape) for n, p in model.named_parameters()})
    write(pathlib.Path(folder) / "w.safetensors", weights)
    subprocess.run([HETU, "checkpoint", "import", f"{folder}/w.safetensors", "-o", f"{folder}/ckpt"], check=True,
                   capture_output=True)
    return model, f"{folder}/ckpt"


def without_cache(folder, model, checkpoint, ids, tokens):
    """Generates greedily and computes the whole row again for each token. Returns (tokens, CPU seconds)."""
    ht.new_graph()
    length = ids.shape[1] + tokens
    logits = model(ht.placeholder("ids", "int32", [ht.BATCH, length]))
    ht.save(f"{folder}/whole", [logits], checkpoint, rows=len(ids))
    whole = ht.load(f"{folder}/whole", threads=1)
    out = np.zeros((len(ids), length), np.int32)
    out[:, :ids.shape[1]] = ids
    began = time.process_time()
    for at in range(ids.shape[1], length):
        out[:, at] = whole(ids=out)[:, at - 1].argmax(-1)
    return out, time.process_time() - began


class Generate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-generate-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_greedily_as_transformers_and_as_without_a_cache(self):
        for name, (family, config) in cases.CASES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model, checkpoint = imported(folder, family, config)
                ht.models.save_generator(f"{folder}/model", model, checkpoint, rows=cases.ROWS, prompt=2)
                generator = ht.models.Generator(f"{folder}/model", threads=1)
                began = time.process_time()
                found = generator(cases.prompt(), cases.TOKENS)
                seconds = time.process_time() - began
                self.assertEqual(found.tolist(), FIXTURE["generated"][name])
                plain, slow = without_cache(folder, model, checkpoint, cases.prompt(), cases.TOKENS)
                np.testing.assert_array_equal(plain, found)
                print(f"{name}: {cases.TOKENS} tokens in {seconds:.3f} s of the processor with a cache, "
                      f"{slow:.3f} s without", flush=True)

    def test_a_given_row_at_once_goes_on_as_one_by_one(self):
        """A prompt read in chunks gives the same tokens as one read token by token, for both families. The rows are not a
        multiple of the batch. Saving again replaces the old model completely, and weights are stored once."""
        for name, (family, config) in cases.CASES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model, checkpoint = imported(folder, family, config)
                ids = np.random.default_rng(4).integers(0, model_cases.WORDS, (3, 50), np.int32)
                found = {}
                for prompt in (16, 7, 1):
                    ht.models.save_generator(f"{folder}/model", model, checkpoint, rows=2, prompt=prompt)
                    self.assertEqual(len(list(pathlib.Path(f"{folder}/model").rglob("*.safetensors"))), 1)
                    generator = ht.models.Generator(f"{folder}/model", threads=1)
                    self.assertEqual(generator.prompt, prompt)
                    found[prompt] = generator(ids, 20).tolist()
                self.assertEqual(found[16], found[1])
                self.assertEqual(found[7], found[1])

    def test_a_generator_of_a_lower_step_replaces_the_old_one_whole(self):
        """The saved graphs and weights all belong to the new model, also those that continue after a long prompt."""
        given, name, of_steps = np.full((1, 8), 5, np.int32), f"{self.folder}/model", set()
        for steps in (3, 2, 1):
            ht.new_graph()
            gpt = ht.models.Gpt.from_config("tiny", n_layer=1)
            rows = np.full((8, 33), steps, np.int32)
            loss = gpt.loss(ht.data.Batches([{"ids": rows}] * 3, batch_size=8))
            job = ht.Executor({"train": [loss, ht.optim.AdamW(0.05).minimize(loss)]}, threads=1)
            list(job.run("train", steps=steps, checkpoint=f"{self.folder}/ckpt-{steps}"))
            found = {}
            for folder, prompt in ((name, 4), (f"{self.folder}/alone-{steps}", 4), (f"{self.folder}/single-{steps}", 1)):
                ht.models.save_generator(folder, gpt, f"{self.folder}/ckpt-{steps}", length=32, prompt=prompt)
                found[prompt, folder] = ht.models.Generator(folder, threads=1)(given, 20).tolist()
            self.assertEqual(len({str(tokens) for tokens in found.values()}), 1)
            self.assertEqual(len(os.listdir(name)), 1)
            of_steps.add(str(found[4, name]))
        self.assertEqual(len(of_steps), 3, "the models must differ, or the test shows nothing")

    def test_drawn_tokens_go_by_seed_and_temperature(self):
        model, checkpoint = imported(self.folder, *cases.CASES["gpt"])
        ht.models.save_generator(f"{self.folder}/model", model, checkpoint, length=40)
        generator = ht.models.Generator(f"{self.folder}/model")
        greedy, cold = generator(cases.prompt(), 20), generator(cases.prompt(), 20, temperature=1e-3, seed=1)
        np.testing.assert_array_equal(greedy, cold)
        one, again, other = (generator(cases.prompt(), 20, temperature=2.0, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, again)
        self.assertTrue((one != other).any())

    def test_what_does_not_fit_is_one_line(self):
        model, checkpoint = imported(self.folder, *cases.CASES["gpt"])
        ht.models.save_generator(f"{self.folder}/model", model, checkpoint, length=10)
        generator = ht.models.Generator(f"{self.folder}/model")
        without_cache(self.folder, model, checkpoint, cases.prompt(), 1)
        for says, make in (
            ("Generator: 5 tokens and 6 new ones do not fit in 10", lambda: generator(cases.prompt(), 6)),
            ("Generator: ids must be whole numbers [B, T], got float64[2]", lambda: generator([1.0, 2.0], 3)),
            ("row 1 has token 999 at position 0; the model knows tokens 0 to 36", lambda: generator([[1, 2], [999, 3]], 3)),
            ("temperature must be finite and at least 0, got -1", lambda: generator(cases.prompt(), 2, temperature=-1)),
            ("tokens must be a whole number >= 0, got 2.5", lambda: generator(cases.prompt(), 2.5)),
            ("length must be from 2 to the model's 80 positions, got 81",
             lambda: ht.models.save_generator("m", model, checkpoint, length=81)),
            ("prompt must be >= 1, got 0",
             lambda: ht.models.save_generator("m", model, checkpoint, prompt=0)),
            ("the model in this folder was not saved by save_generator",
             lambda: ht.models.Generator(f"{self.folder}/whole")),
        ):
            with self.subTest(says), self.assertRaises(ValueError) as caught:
                make()
            text = str(caught.exception)
            self.assertRegex(text, r"^generate_test\.py:\d+: ")
            self.assertIn(says, text)
            self.assertNotIn("\n", text)


if __name__ == "__main__":
    unittest.main()
