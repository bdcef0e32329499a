"""Training by waves over parameter servers, as users call it.

Two pipelines agree, and jobs resume on other grids. When servers or workers are killed, the job ends and names them. Each
unsupported combination is refused in one line.
`hetpipe_test.py --whole` kills at 50 moments of each kind instead of 2, and restarts 51 servers instead of 3. The moments
come from a seed that is printed."""
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

from processes import process_of, wait_until
from train_cases import END_S, MANY_S, MODEL, TrainCase, checksums, manifest_of, tensors

MOMENTS = 50 if "--whole" in sys.argv else 2
RESTARTED = 17 if "--whole" in sys.argv else 1  # jobs in which three servers are killed and restarted
SEED = int(os.environ.get("TRAIN_TEST_SEED", time.time_ns() % 100000))
FOREVER = 1000000
HETPIPE = ("--pipeline", "hetpipe", "--micro-batches", 4, "--optimizer", "momentum", "--learning-rate", "3e-3")


class Hetpipe(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False, "hidden_dropout_prob": 0,
                                         "attention_probs_dropout_prob": 0}))

    def test_learns_and_resumes_on_another_grid(self):
        for staleness in (0, 2):
            saved = self.folder / f"saved{staleness}"
            how = (*HETPIPE, "--staleness", staleness, "--checkpoint", saved)
            first = self.train((2, 2), *how, "--steps", 30)
            self.assertEqual(first.steps, list(range(30)))
            self.assertLess(sum(first.losses[-5:]), sum(first.losses[:5]))
            grid, batch = ((4, 1), 4) if staleness else ((1, 2), 16)
            second = self.train(grid, *how, "--batch-size", batch, "--resume", "--steps", 40)
            self.assertEqual(second.steps, list(range(30, 40)))
            self.assertLess(second.losses[0], first.losses[0])
            self.assertEqual(manifest_of(saved)[1]["step"], 40)

    def test_waves_of_staleness_zero_do_not_depend_on_timing(self):
        """Weights are equal except for the order in which servers add, which is the order of arrival."""
        import numpy as np

        for k in range(2):
            slow = ("--slow", "pipeline=1,factor=3") if k else ()
            self.train((2, 2), *HETPIPE, "--steps", 6, "--checkpoint", self.folder / f"{k}", *slow)
        one, two = (tensors(self.folder / f"{k}") for k in range(2))
        for key, values in one.items():
            self.assertLess(np.abs(values - two[key]).max(), 1e-5, key)

    def test_several_servers_and_one_pipeline_alone(self):
        done = self.train((2, 1), *HETPIPE, "--steps", 5, before=())
        self.assertEqual(done.steps, list(range(5)))
        words, log = self.command((2, 1), *HETPIPE, "--steps", 5)
        at = words.index("-w")
        words[at:at] = ["-s", "3"]
        process, _ = self.start((1, 2), *HETPIPE, "--steps", 5)  # a job of one pipeline: no server
        output, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, output + error)
        several = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertEqual(several.returncode, 0, several.stdout + several.stderr)
        self.assertIn("Servers(3): {'localhost': 3}", several.stderr)
        self.assertEqual(len(log.read_text().splitlines()), 5)

    def test_a_stop_saves_one_state(self):
        """SIGUSR1 in the middle of training ends all pipelines after the same wave, and training continues from the
        checkpoint."""
        saved = self.folder / "saved"
        process, log = self.start((2, 2), *HETPIPE, "--staleness", 1, "--steps", FOREVER, "--checkpoint", saved)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 8), process.poll())
        os.kill(process.pid, signal.SIGUSR1)
        output, error = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, output + error)
        step = manifest_of(saved)[1]["step"]
        before = checksums(saved)
        self.train((2, 2), *HETPIPE, "--steps", step + 1, "--checkpoint", saved, "--resume")
        self.assertEqual(manifest_of(saved)[1]["step"], step + 1)
        self.assertNotEqual(checksums(saved), before)

    def test_servers_that_are_killed_and_go_on(self):
        """With staleness 0, every pull has exactly the waves up to its own. The weights equal those of an undisturbed job,
        except for the order in which servers add."""
        import numpy as np

        steps = 60  # few, since differences of rounding grow with the steps
        self.train((2, 2), *HETPIPE, "--steps", steps, "--checkpoint", self.folder / "peace")
        peace = tensors(self.folder / "peace")
        draw = random.Random(f"{SEED} again")
        for moment in range(RESTARTED):
            with self.subTest(moment=moment, seed=SEED):
                saved, staleness = self.folder / f"killed{moment}", 0 if moment % 3 < 2 else 2
                process, log = self.start((2, 2), *HETPIPE, "--staleness", staleness, "--steps", steps,
                                          "--checkpoint", saved)
                self.kill_servers_of(process, log, draw)
                output, error = process.communicate(timeout=MANY_S)
                self.assertEqual(process.returncode, 0, output + error)
                again = re.findall(r"^heturun: the server 0 \(pid \d+\) was killed by SIGKILL; it is started again from its "
                                   r"log, (\d) of at most 100 times$", error, re.M)
                self.assertEqual(again, ["1", "2", "3"], error)
                self.assertEqual(len(log.read_text().splitlines()), steps)
                for key, values in tensors(saved).items() if staleness == 0 else ():
                    self.assertLess(np.abs(values - peace[key]).max(), 2e-4, key)
                self.check_nothing_runs()

    def server_of(self):
        """Returns the process id of the job's server, once it exists."""
        wait_until(lambda: process_of(self.mark, "hetu.launch.server"))
        return process_of(self.mark, "hetu.launch.server")

    def ends_for_its_server(self, harm, code, says, before=()):
        """Checks that a job whose server is lost for good ends in time and reports the reason in one line."""
        process, log = self.start((2, 1), *HETPIPE, "--steps", FOREVER, heturun=before)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 5), process.poll())
        since = time.monotonic()
        harm(self.server_of())
        _, error = process.communicate(timeout=MANY_S)
        self.assertLess(time.monotonic() - since, END_S, error)
        self.assertEqual(process.returncode, code, error)
        for line in says:
            self.assertEqual(len(re.findall(line, error, re.M)), 1, f"{line} in: {error}")
        return error

    def test_a_server_that_is_killed_again_and_again(self):
        def kill(victim):
            os.kill(victim, signal.SIGKILL)
            for _ in range(3):
                wait_until(lambda gone=victim: process_of(self.mark, "hetu.launch.server") not in (None, gone), END_S)
                victim = process_of(self.mark, "hetu.launch.server")
                os.kill(victim, signal.SIGKILL)
        self.ends_for_its_server(kill, 128 + signal.SIGKILL, (
            r"^heturun: the server 0 \(pid \d+\) was killed by SIGKILL; .* 3 of at most 100 times$",
            r"^heturun: the server 0 \(pid \d+\) was killed by SIGKILL, 4 times within 10 s; ending the other 2 workers$"))

    def test_a_full_disk_under_the_log(self):
        newest = []  # the server's newest log depends on the job's speed

        def fill(pid):
            newest.append(max(path.name for path in self.folder.glob("hetu-*/server-0.log.*")))
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, 4096))

        error = self.ends_for_its_server(fill, 4, (
            rf"^server 0: cannot write {self.folder}/hetu-\w+-\w+/server-0\.log\.\d+: File too large, after \d+ bytes; "
            r"make room, or choose another folder for logs$",
            r"^heturun: the server 0 \(pid \d+\) exited with status 4; ending the other 2 workers$"),
            before=("--server-log", str(self.folder)))
        self.assertIn(f"/{newest[0]}: File too large", error)
        self.assertEqual(list(self.folder.glob("hetu-*")), [])

    def test_a_damaged_log(self):
        def damage(victim):
            os.kill(victim, signal.SIGSTOP)
            log, = self.folder.glob("hetu-*/server-0.log.0")
            with open(log, "r+b") as file:
                file.seek(log.stat().st_size // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 16]))
            os.kill(victim, signal.SIGKILL)
        self.ends_for_its_server(damage, 4, (
            r"^server 0: .*/server-0\.log\.0, byte \d+: the log is damaged: .*$",
            r"^heturun: the server 0 \(pid \d+\) exited with status 4; ending the other 2 workers$"),
            before=("--server-log", str(self.folder)))

    def kill_at_random_moments(self, who):
        draw = random.Random(f"{SEED} {who}")
        saved = self.folder / "saved"
        for moment in range(MOMENTS):
            number = None if who == "server" else draw.randrange(4)
            with self.subTest(moment=moment, seed=SEED):
                before = manifest_of(saved)[1]["step"] if saved.exists() else 0
                process, log = self.start((2, 2), *HETPIPE, "--staleness", moment % 3, "--steps", FOREVER, "--save-every", 4,
                                          "--checkpoint", saved, "--resume", "--keep", 2, heturun=("--no-server-restart",))
                self.assertTrue(wait_until(lambda log=log: log.exists() and log.read_text().count("\n") > 9), process.poll())
                time.sleep(draw.random() * 0.3)
                victim = process_of(self.mark, "hetu.launch.server" if who == "server" else "train_bert.py", number)
                self.assertIsNotNone(victim)
                since = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                _, error = process.communicate(timeout=MANY_S)
                self.assertLess(time.monotonic() - since, END_S, error)
                self.assertEqual(process.returncode, 128 + signal.SIGKILL, error)
                name = "the server 0" if who == "server" else f"worker {number}"
                self.assertRegex(error, rf"heturun: {name} \(.*pid \d+\) was killed by SIGKILL; ending the other")
                self.check_nothing_runs()
                self.assertGreater(manifest_of(saved)[1]["step"], before)

    def test_a_killed_server(self):
        self.kill_at_random_moments("server")

    def test_a_killed_worker(self):
        self.kill_at_random_moments("worker")

    def test_what_does_not_fit(self):
        for options, says in (
            (("--pipeline", "1f1b", "--wave", 4), "--wave belongs to --pipeline hetpipe, and the pipeline is 1f1b"),
            (("--pipeline", "hetpipe", "--wave", 2), "--wave 2 and --micro-batches 4 set the same number of hetpipe"),
            (("--pipeline", "hetpipe", "--micro-batches", 3, "--wave", 3), "--batch-size 8 is not a multiple of --wave 3"),
            (("--pipeline", "hetpipe", "--micro-batches", 0, "--wave", 0), "--wave must be >= 1, got 0"),
            (("--pipeline", "hetpipe", "--staleness", -2), "--staleness.*-2"),
            (("--pipeline", "hetpipe", "--staleness", 10**11), "--staleness must be <= 1048576, got 100000000000"),
            (("--pipeline", "1f1b", "--staleness", 2), "--staleness 2 needs pipelines that share weights over servers"),
            (("--pipeline", "hetpipe", "--preduce"), "'hetpipe' shares weights over servers.* Leave --preduce out"),
            (("--pipeline", "hetpipe", "--adpsgd"), "Leave --adpsgd out"),
        ):
            with self.subTest(options=options):
                self.refused_in_plan((2, 2), *options, "--steps", 2, says=says)
        self.refused((2, 1), *HETPIPE, "--compare-single", "--steps", 2, says="compare")

    def test_without_heturuns_servers(self):
        """mpirun alone starts no servers."""
        words, _ = self.command((2, 1), *HETPIPE, "--steps", 2)
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *words[words.index("2") + 1:]]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=MANY_S, cwd=self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("HETU_SERVERS", done.stderr)
        self.assertIn("heturun", done.stderr)


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main()
