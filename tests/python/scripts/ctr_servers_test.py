"""train_ctr.py --tables server as users call it.

Results equal those of tables on workers, also after a stop and a restart with other servers. Servers may be killed. Bounded
caches cost no AUC. Plans may have stages or not. Each unsupported combination is refused in one line."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from processes import process_of, wait_until
from train_cases import HETURUN, MANY_S, checksums
from train_ctr_test import EVALUATED, CtrCase

WHOLE = "--whole" in sys.argv
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
SAID = re.compile(r"table (\S+) on servers: (\d+) rows looked up, (\d+\.\d)% not in the cache; (\d+\.\d\d) MB sent, "
                  r"without a cache (\d+\.\d\d) MB")
SERVED = ("--tables", "server")


class Served(CtrCase):
    def command(self, grid, *options, before=()):
        """Builds a command under heturun, also for one worker. `before` holds heturun's own arguments."""
        words, log = super().command(grid, *options)
        if grid == (1, 1) and "server" in options:
            return [*HETURUN, "-w", "1", *map(str, before), *words], log
        at = words.index("-w") if before else 0
        return [*words[:at], *map(str, before), *words[at:]], log

    def test_the_bits_of_tables_on_workers(self):
        """Checksums are equal for several plans on one to three servers, and after a stop with another number of servers."""
        cases = [("wide-deep", (1, 1), "gpipe", 1, "adagrad"), ("dlrm", (1, 2), "1f1b", 2, "adam"),
                 ("wide-deep", (2, 2), "gpipe", 3, "sgd")]
        cases += [("dlrm", (2, 1), "dp", 2, "adagrad"), ("wide-deep", (1, 4), "zb-h1", 1, "momentum")] if WHOLE else []
        for model, grid, method, servers, optimizer in cases:
            with self.subTest(model=model, grid=grid, method=method, servers=servers, optimizer=optimizer):
                how = ("--model", model, "--optimizer", optimizer, "--pipeline", method, "--learning-rate", "1e-2",
                       "--micro-batches", 1 if grid[0] > 1 else 4, "--lazy-rows")
                want, got = self.folder / f"{model}{grid}-worker", self.folder / f"{model}{grid}-server"
                self.train(grid, *how, "--steps", 12, "--checkpoint", want)
                self.train(grid, *how, *SERVED, "--steps", 7, "--checkpoint", got, before=("-s", servers))
                self.train(grid, *how, *SERVED, "--steps", 12, "--checkpoint", got, "--resume", before=("-s", 1))
                self.assertEqual(checksums(got), checksums(want))

    def test_goes_on_without_servers(self):
        saved, want = self.folder / "saved", self.folder / "want"
        self.train((1, 2), "--steps", 12, "--checkpoint", want)
        self.train((1, 2), *SERVED, "--steps", 5, "--checkpoint", saved, "--cache-rows", 300)
        self.train((1, 1), "--steps", 9, "--checkpoint", saved, "--resume")
        self.train((1, 4), *SERVED, "--steps", 12, "--checkpoint", saved, "--resume")
        self.assertEqual(checksums(saved), checksums(want))

    def test_a_killed_server_changes_no_bit(self):
        how = (*SERVED, "--steps", 60, "--cache-rows", 500)
        want, saved, draw = self.folder / "peace", self.folder / "killed", random.Random(SEED)
        self.train((2, 1), *how, "--checkpoint", want)
        process, log = self.start((2, 1), *how, "--checkpoint", saved, heturun=("-s", "2"))
        kills = (4, 12, 20) if WHOLE else (6,)
        for after in kills:
            self.assertTrue(wait_until(lambda n=after: log.exists() and log.read_text().count("\n") > n), process.poll())
            time.sleep(draw.random() * 0.1)
            self.assertTrue(wait_until(lambda: process_of(self.mark, "hetu.launch.server")), process.poll())
            os.kill(process_of(self.mark, "hetu.launch.server"), signal.SIGKILL)
        output, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, output + error)
        self.assertEqual(error.count("it is started again from its log"), len(kills), error)
        self.assertEqual(checksums(saved), checksums(want), f"seed {SEED}")

    def test_a_table_may_be_larger_than_a_workers_memory(self):
        """The trace of such a job reports the use of its caches."""
        large = ("--hash-size", 1_000_000, "--embedding-width", 16, "--memory-limit", "64MiB", "--steps", 3)
        trace = self.folder / "trace.json"
        self.train((1, 2), *SERVED, *large, "--trace", trace)
        tables = json.loads(trace.read_text())["metadata"]["tables"]
        self.assertEqual({(t["worker"], t["table"]) for t in tables},
                         {(0, "embedding.weight"), (0, "wide.categories.weight")})
        self.assertTrue(all(t["lookups"] > 100 and t["bytes"] == t["bytes_uncached"] for t in tables), tables)
        self.refused((1, 2), *large, says="over the limit of 64.0 MiB")

    def test_bounds_cost_no_auc_and_save_traffic(self):
        """The output ends with the traffic that a cache saves. A bound of 0 changes no bit."""
        self.compare_bounds(0.02, "--epochs", 2)

    @unittest.skipUnless(WHOLE, "131072 rows, twice, under four caches: in ctr_servers_whole_test")
    def test_bounds_cost_no_auc_of_many_rows(self):
        clicks = self.folder / "many"
        subprocess.run(["hetu", "data", "sample", "--kind", "criteo", str(clicks), "--train", "131072", "--val", "32768"],
                       check=True, capture_output=True, timeout=MANY_S)
        self.compare_bounds(0.002, "--epochs", 2, "--data", clicks, "--hash-size", 2000, "--batch-size", 128,
                            "--embedding-width", 16, "--hidden", "256,128,64")

    def compare_bounds(self, near, *how):
        areas, sent = {}, {}
        for name, options in (("none", ()), *((bound, ("--cache-rows", 30000, "--pull-bound", bound, "--push-bound", bound))
                                              for bound in (0, 10, 100))):
            done = self.train((2, 1), *SERVED, *how, "--learning-rate", "0.15", "--optimizer", "sgd", *options)
            _, loss, area = EVALUATED.findall(done.out)[-1]
            areas[name] = float(area)
            said = {found[0]: found for found in SAID.findall(done.out)}
            self.assertEqual(set(said), {"embedding.weight", "wide.categories.weight"}, done.out)
            sent[name] = float(said["embedding.weight"][3])
            print(f"bound {name}: loss {loss} AUC {area}, {sent[name]} MB", file=sys.stderr)
        self.assertEqual(areas[0], areas["none"])
        self.assertLess(sent[100], sent[10])
        self.assertLess(sent[10], 0.8 * sent["none"])
        for bound in (10, 100):
            self.assertAlmostEqual(areas[bound], areas["none"], delta=near)

    def test_refused(self):
        for options, says in (
            (("--tables", "cloud"), "argument --tables: invalid choice: 'cloud'"),
            (("--cache-rows", 5), "--cache-rows needs a model with embedding tables on parameter servers"),
            ((*SERVED, "--cache-rows", -1), "--cache-rows must be >= 0, got -1"),
            ((*SERVED, "--cache-policy", "fifo"), "argument --cache-policy: invalid choice: 'fifo'"),
            ((*SERVED, "--pipeline", "pipedream", "--micro-batches", 1), "but 'pipedream' updates stage by stage"),
            ((*SERVED, "--sync-method", "ps"),
             "parameter servers run the optimizer (--sync-method ps). Leave --sync-method ps out"),
            ((*SERVED, "--optimizer", "lamb"), "but lamb does. Choose another optimizer"),
            ((*SERVED, "--clip-norm", 1), "Leave clip_norm out"),
            ((*SERVED, "--cache-rows", 9, "--push-bound", 1), "which only sgd without l2 can do"),
            ((*SERVED, "--compare-single"), "compare-single: the model has tables on parameter servers"),
        ):
            with self.subTest(options):
                self.refused((1, 1), *options, says=re.escape(says))
        words, _ = super().command((1, 1), *SERVED)  # without heturun
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr.count("train_ctr.py: ")), (2, 1), done.stderr)
        self.assertIn("but this job has no servers; start it with heturun", done.stderr)


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
