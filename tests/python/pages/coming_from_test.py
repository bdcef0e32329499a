"""Every row of docs/coming-from.md that says "works" is run here, and no other row is run.

A row is named by its first cell. `hetu` commands in the second cell are run unchanged. Everything else that a row promises
is checked by a method of Checks, whose name CHECKS (coming_from_rows.py) gives. `--whole` also runs the largest grids of
rows."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.util import find_spec

import script_checks
import sd_pipe_checks
from coming_from_rows import CHECKS, PAGE, all_commands, commands, flags_to_come, rows
from hetu import _hetu, data, devices
from hetu.launch import command_line, environment, network
from processes import wait_until
from prose_text import write_prose
from train_cases import MANY_S, ROOT, ROWS, SHARDS, TrainCase, manifest_of
from train_cases import MODEL as SIZES

TORCH = ROOT / "tests" / "python" / "torch"

WHOLE = "--whole" in sys.argv
EIGHT = [(f"w{w}", 8) for w in range(8)]


class Page(unittest.TestCase):
    """The tables of the page."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-page-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_states(self):
        for (system, first), (_, state) in rows().items():
            with self.subTest(system=system, row=first):
                self.assertRegex(state, r"^(works|to come: .+|replaced|written, unverified on .+)$")

    def test_every_row_that_works_has_a_check_and_no_other(self):
        works = {first for (_, first), (second, state) in rows().items()
                 if state.startswith("works") and not all_commands(second)}
        listed = [first for names in CHECKS.values() for first in names]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual(works, set(listed))

    def test_options_of_rows_that_work_are_options_here(self):
        """An option that has a different name in Hetu is marked as replaced, not as working."""
        scripts = ("train_bert.py", "train_resnet.py", "main_bert.py", "main_bert_simple.py", "heturun",
                   "varuna/run_varuna.py")
        programs = [[str(ROOT / "python" / script)] for script in scripts] + [["-m", "hetu.launcher"]]
        told = "".join(subprocess.run([sys.executable, *program, "--help"], capture_output=True, text=True,
                                      check=True).stdout for program in programs)
        known = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", told))
        seen = 0
        for (system, first), (_, state) in rows().items():
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(re.findall(r"`([^`]*)`", first))):
                with self.subTest(system=system, row=first, option=option):
                    self.assertTrue(option in known or not state.startswith("works"))
                    seen += option in known
        self.assertGreater(seen, 15)

    def test_commands(self):
        for (system, first), (second, state) in rows().items():
            if state.startswith("works") and all_commands(second):
                for words in commands(second):
                    with self.subTest(system=system, row=first, words=words):
                        done = subprocess.run(shlex.split(words), capture_output=True, text=True, cwd=self.folder)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertTrue(done.stdout or (self.folder / words.split()[-1]).stat().st_size)


class Checks(TrainCase):
    """The promises of the rows, with one method per entry of CHECKS."""

    def test_all_are_here(self):
        here = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        self.assertEqual(here - {"all_are_here", "flags_to_come_are_refused"}, set(CHECKS))

    def test_flags_to_come_are_refused(self):
        """Flags that the page calls unsupported are refused. Otherwise the page is out of date."""
        self.assertEqual(flags_to_come({("S", "`--x y`"): ("", "to come: z"), ("S", "`--w`"): ("", "works")}),
                         [["--x", "y"]])  # the page may have no such flags
        for words in flags_to_come(rows()):
            with self.subTest(words=words):
                done = self.run_job((1, 1), *words, "--steps", 1)
                self.assertIn(done.code, (2, 3), str(done))

    def run_words(self, *words, **more):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MANY_S,
                              stdin=subprocess.DEVNULL, **{"env": self.env, **more})
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def test_auto_config(self):
        entry = {"fwd": 100, "bwd": 200, "copy": 1, "max_memory": 1000, "acts_size": 40}
        for name, value in (("compute-profile-0", {"1": entry}), ("compute-profile-1", {"1": entry}),
                            ("comm-profile", {"10": {"send": 5, "long_send": 9}}),
                            ("allred-profile", {"1": [0, 30], "2": [0, 30]})):
            (self.folder / name).write_text(json.dumps(value))
        done = self.run_words(sys.executable, "-c", "from hetu.varuna import AutoConfig; "
                              "print(AutoConfig(2, 2, 4, '.').get_min())", cwd=self.folder)
        self.assertIn("2 stages x 1 replicas, micro-batches of 1", done.stdout)
        self.assertIn("Choice(stages=1, micro_batch_size=1", done.stdout)

    def test_run_varuna(self):
        (self.folder / "ips").write_text("127.0.0.1\n")
        (self.folder / "user_training_script.py").write_text("import sys\nprint(*sorted(sys.argv[1:]))\n")
        self.run_words(sys.executable, "-m", "varuna.run_varuna", "--machine_list", "ips", "--gpus_per_node", 2,
                       "--batch-size", 8, "--nstages", 2, "--chunk_size", 2, "--code_dir", ".", "user_training_script.py",
                       "--lr", 1, cwd=self.folder)
        self.assertEqual((self.folder / "ssh_logs" / "worker-1.out").read_text(),
                         "--batch-size=8 --chunk_size=2 --local_rank=1 --lr --rank=1 --stage_to_rank_map=0;1; 1\n")

    def test_elastic(self):
        machines = self.folder / "available_machines.out"
        machines.write_text("127.0.0.1 2\n")
        done = self.run_words("heturun", "--elastic", "--machines", machines, "python3", ROOT / "python" / "train_bert.py",
                              "--data", self.data, "--model", self.model, "--devices", "pipe_1_2", "--pipeline", "1f1b",
                              "--batch-size", 4, "--micro-batches", 2, "--steps", 3, "--checkpoint", self.folder / "saved")
        self.assertIn("heturun: round 1: 1 pipeline x 2 stages on 127.0.0.1 2\n", done.stderr)

    def test_partial_reduce(self):
        model = self.folder / "untied.json"
        model.write_text(json.dumps({**SIZES, "tie_word_embeddings": False}))
        for options in (("--preduce",), ("--preduce", "--adpsgd"), ("--adpsgd", "lockstep"), ("--hetero", "0.01")):
            with self.subTest(options):
                self.train((2, 1), *options, "--model", model, "--pipeline", "pipedream", "--micro-batches", 1, "--steps", 6)

    def test_convergence_bound(self):
        """The page's command runs unchanged. N = 4, P = 1, n1 = 4: t1 = 16 ((1 + 256) / (1 - 1 / 256))^2, K = 10^28.66."""
        cell = rows()["SD-PIPE", "the convergence bound: learning rate and updates K"][0]
        said = self.run_words(*shlex.split(re.search(r"`(python3 [^`]+)`", cell)[1])).stdout
        self.assertIn("updates K >= 10^28.6600   (t1 = 10^6.0274, 1 - t2 = 0.001955)\n", said)

    def test_pauses_by_the_environment(self):
        """DEBUG_HETERO takes effect where --hetero isn't given: the same pauses, drawn from the seed."""
        self.env["DEBUG_HETERO"] = "3"
        since = time.monotonic()
        done = self.train((1, 2), "--steps", 4)
        self.assertGreater(time.monotonic() - since, 3)
        self.assertIn("DEBUG_HETERO=3: trains as with --hetero 3\n", done.err)
        done = self.train((1, 2), "--steps", 1, "--hetero", "0.01")
        self.assertNotIn("DEBUG_HETERO", done.err)
        self.env["DEBUG_HETERO"] = "much"
        done = self.run_job((1, 2), "--steps", 1)
        self.assertEqual(done.code, 2, str(done))
        self.assertIn("environment variable DEBUG_HETERO: got 'much'; it must be a number of seconds of at least 0",
                      done.err)

    def test_servers(self):
        model = self.folder / "untied.json"
        model.write_text(json.dumps({**SIZES, "tie_word_embeddings": False}))
        done = self.run_words("heturun", "-w", 4, "-s", 2, "python3", ROOT / "python" / "train_bert.py", "--data", self.data,
                              "--model", model, "--pipeline", "hetpipe", "--devices", "pipe_2_2", "--batch-size", 8,
                              "--wave", 4, "--staleness", 1, "--steps", 4, "--threads", 1)
        self.assertIn("Servers(2): {'localhost': 2}", done.stderr)
        self.assertIn("hetpipe, pipe_2_2: 2 pipelines x 2 stages", done.stdout)

    @unittest.skipUnless(WHOLE, "configures the whole tree: with --whole; config_file_test reads the same file always")
    def test_configures(self):
        shutil.copy(ROOT / "cmake" / "config.example.cmake", self.folder / "config.cmake")
        build = self.folder / "build"
        build.mkdir()
        self.run_words("cmake", ROOT, "-G", "Unix Makefiles", f"-DHETU_CONFIG={self.folder / 'config.cmake'}", cwd=build)
        built = self.run_words("make", "-j", "hetu_base", cwd=build)  # the preset tests build all targets
        self.assertIn("Built target hetu_base", built.stdout)

    def test_exports(self):
        bare = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        found = self.run_words("bash", "-c", "source hetu.exp && command -v heturun && python3 -c 'import hetu'", cwd=ROOT,
                               env=bare)
        self.assertEqual(os.path.realpath(found.stdout.strip()), f"{ROOT}/python/heturun")
        self.run_words(sys.executable, "-c", "import hetu; assert hetu.ops.add")

    def test_shards_are_read(self):
        folder = self.folder / "shards"
        folder.mkdir()
        for number in range(SHARDS):
            shutil.copy(self.data / f"small_training_{number}.hdf5", folder / f"wikicorpus_en_training_{number}.hdf5")
        said = self.run_words("hetu", "data", "check", folder)
        self.assertIn(str(SHARDS * ROWS), said.stdout + said.stderr)

    def test_bert_prep(self):
        sd_pipe_checks.bert_prep(self)

    def text_words(self):
        """Returns Chimera's flags for a text in Latin-1 and a vocabulary made from it."""
        text, vocabulary = self.folder / "wikipedia.segmented.nltk.txt", self.folder / "words.txt"
        lines = [f"Fa\xe7ade {i} is white ." + "\n" * (i % 5 == 4) for i in range(200)]
        text.write_text("\n".join(lines), encoding="latin-1")
        self.run_words("hetu", "data", "vocabulary", text, "--encoding", "latin-1", "-o", vocabulary, "--size", 200)
        return ["--corpus_path", text, "--vocab_path", vocabulary]

    def test_text_is_read(self):
        _, text, _, vocabulary = self.text_words()
        said = self.run_words(sys.executable, ROOT / "python" / "train_bert.py", "--data", text, "--vocab", vocabulary,
                              "--encoding", "latin-1", "--steps", 2, "--model", "tiny", "--batch-size", 4,
                              "--sequence-length", 16)
        self.assertIn("TRAIN loss", said.stdout)

    def test_main_bert(self):
        said = self.run_words("heturun", "-w", 4, sys.executable, ROOT / "python" / "main_bert.py", *self.text_words(),
                              "--bert_config_path", "tiny", "--pipeline_method", "chimera", "--max_seq_length", 16,
                              "--micro_batch_size", 1, "--profile", "--log_interval", 4, "--partition", "published",
                              cwd=self.folder)
        self.assertIn("blocks 2 + 1 + 1 + 2 as given", said.stdout)
        self.assertRegex(said.stdout, r"num_replica: 2\n(.*\n)+.*epoch1 step8 loss = (.*\n)+.*Finished\.")
        self.assertTrue((self.folder / "bert_prof" / "tiny_chimera_4stages_4gpus_microbs1_acc1.pdf").is_file())

    def test_wandb(self):
        script_checks.wandb(self)

    def test_main_bert_kfac(self):
        script_checks.main_bert_kfac(self)

    def test_main_bert_simple(self):
        said = self.run_words("heturun", "-w", 2, sys.executable, ROOT / "python" / "main_bert_simple.py",
                              *self.text_words(), "--bert_config_path", "tiny", "--max_seq_length", 16, "--batch_size", 8,
                              "--num_optimization_steps", 2, cwd=self.folder)
        self.assertRegex(said.stdout, r"global batch: 8 samples per step, 2 pipelines x 4\n(.*\n)+.*Finished\.")

    def test_scripts(self):
        script_checks.chain(self)

    def test_scripts_by_hand(self):
        script_checks.by_hand(self)

    def test_shutdown(self):
        script_checks.shutdown(self)

    def test_pre_command(self):
        script_checks.pre_command(self)

    def test_pipedream_files(self):
        script_checks.pipedream_files(self)

    def test_by_hand(self):
        """Separately started processes train on one host. tests/hosts/by_hand_test.py uses two hosts."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = [sys.executable, ROOT / "python" / "main_bert.py", *self.text_words(), "--bert_config_path", "tiny",
                 "--pipeline_method", "1f1b", "--num_stages", 2, "--max_seq_length", 16, "--micro_batch_size", 1,
                 "--num_optimization_steps", 2]
        shells = [subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=self.folder, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                                                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                  for rank in (0, 1)]
        said = [shell.communicate(timeout=MANY_S) for shell in shells]
        self.assertEqual([shell.returncode for shell in shells], [0, 0], said)
        self.assertIn("Finished.", said[0][0])

    def test_every_row_once(self):
        source = data.BertHdf5(str(self.data), batch_size=12, seed=3)
        seen, order = [], []
        for pipeline in range(2):
            loader = source.loader(2, pipeline, ["input_ids"])
            for _ in range(SHARDS * ROWS // 24):
                batch = [row.tobytes() for row in loader.next()["input_ids"]]
                seen += batch
                order.append(batch[0])
        self.assertEqual((len(seen), len(set(seen))), (SHARDS * ROWS, SHARDS * ROWS))
        other = data.BertHdf5(str(self.data), batch_size=12, seed=4).loader(2, 0, ["input_ids"])
        self.assertNotEqual(other.next()["input_ids"][0].tobytes(), order[0])

    def test_shipped_files(self):
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        for name, hosts, workers, servers in (("w0_w1", 2, 16, 1), ("w2_w3", 2, 16, 1), ("w4_w5", 2, 16, 1),
                                              ("w6_w7", 2, 16, 1), ("w0_w3", 4, 32, 1), ("w0_w7", 8, 64, 1),
                                              ("config_local", 1, 4, 1), ("local", 1, 4, 0)):
            nodes, warnings = _hetu.read_cluster(command_line.find_config(f"config/{name}.yml"))
            sums = len(nodes), sum(n["workers"] for n in nodes), sum(n["servers"] for n in nodes)
            self.assertEqual((sums, warnings), ((hosts, workers, servers), []), name)

    def test_cluster_file(self):
        path = self.folder / "own.yml"
        path.write_text("shared: {}\nnodes:\n  - {host: node-17.example.org, chief: true}\n  - {host: b_2, workers: 3}\n")
        nodes, warnings = _hetu.read_cluster(str(path))
        self.assertEqual(nodes, [{"host": "node-17.example.org", "servers": 0, "workers": 0, "chief": True},
                                 {"host": "b_2", "servers": 0, "workers": 3, "chief": False}])
        self.assertEqual(len(warnings), 1)
        path.write_text("nodes:\n  - {host: w0, gpus: 1, chief: true}\n")
        with self.assertRaisesRegex(ValueError, "own.yml:2: unknown key 'gpus' of a node"):
            _hetu.read_cluster(str(path))

    def test_device_lists(self):
        import device_list  # a module of the scripts
        lists = devices.lists_of(device_list)
        for name, pipelines, stages, hosts in (("pipe_2_4", 2, 4, 1), ("pipe_4_4", 4, 4, 2), ("pipe_8_4", 8, 4, 4),
                                               ("pipe_16_4", 16, 4, 8), ("pipe_8_2", 8, 2, 2), ("pipe_16_1", 16, 1, 2)):
            layout = devices.choose(name, lists, EIGHT[:hosts])
            self.assertEqual((layout.name, layout.pipelines, layout.stages), (name, pipelines, stages))
        layout = devices.choose("", lists, EIGHT[:2])
        self.assertEqual((layout.name, layout.worker_of[0]), ("my_device", (0, 1, 2, 3)))
        self.assertEqual(layout.worker_of[2], (8, 9, 10, 11))
        self.assertEqual(devices.choose("pipe_3_2", lists, [("a", 6)]).stages, 2)
        self.assertEqual(devices.parse_devices("w0:gpu:4; gpu:0,w1:gpu:1"),
                         [devices.rgpu("w0", 4), devices.gpu(0), devices.rgpu("w1", 1)])

    def test_launches(self):
        key = self.folder / "key"
        key.write_text("")
        self.env.update(DMLC_INTERFACE="eth7", PS_VERBOSE="1", PORT="4242")
        script = "printf '%s|' \"$@\" $DMLC_INTERFACE $PS_VERBOSE $PORT; echo"
        done = self.run_words("heturun", "-w", 2, "-i", key, "sh", "-c", script, "sh", "a b", "", "$X", "--workers")
        for worker in range(2):
            self.assertIn(f"[{worker}] a b||$X|--workers|eth7|1|4242|\n", done.stdout)
        self.assertIn("Cluster: {\n  Chief: localhost,\n  Servers(0): {},\n  Workers(2): {'localhost': 2},\n}\n",
                      done.stderr)
        exported = [name for name in ("DMLC_ROLE", "PS_RESEND", "PORT", "MARK") if environment.EXPORTED.match(name)]
        self.assertEqual(exported, ["DMLC_ROLE", "PS_RESEND", "PORT"])
        self.run_words("heturun", "--workers", 1, "--identify", key, "true")

    def test_older_launcher(self):
        sd_pipe_checks.older_launcher(self)

    def test_older_servers(self):
        sd_pipe_checks.older_servers(self)

    def test_prefix(self):
        self.assertEqual(network.common_network(["10.1.2.1", "10.1.2.2"]), "10.1.2.0/30")
        self.assertEqual(network.common_network(["10.1.2.1", "10.1.9.2"]), "10.1.0.0/20")
        self.assertEqual(network.common_network(["10.1.2.1", "10.1.200.2"]), "10.1.0.0/16")
        self.assertIsNone(network.common_network(["10.1.2.1", "10.2.2.1"]))

    def test_bert(self):
        self.assertTrue(SIZES["tie_word_embeddings"])
        said = self.run_words("heturun", "-c", "config/local.yml", "python3", "train_bert.py", "--data", self.data,
                              "--model", self.model, "--epochs", 1, "--batch-size", 32, "--micro-batches", 2,
                              "--learning-rate", "1e-4", "--pipeline", "gpipe", "--devices", "pipe_1_4", "--threads", 1,
                              "--name", self.folder / "runs", cwd=ROOT / "python").stdout
        events = list((self.folder / "runs").glob("events.out.tfevents.*"))
        self.assertEqual(len(events), 1)
        self.assertIn(b"Train/loss", events[0].read_bytes())
        self.assertIn("[0] Training 1 epoch, each epoch runs 100 iteration\n", said)
        self.assertRegex(said, r"\[0\] learning rate: 5e-08 to 5e-06 over 100 steps \(warm-up of 2000 to 0.0001, then "
                               r"constant\)\n\[0\] warning: this run ends during the warm-up: .* \(--warmup-steps\)\n")
        blocks = re.search(r"\[0\] gpipe, pipe_1_4: .*, blocks (\d+) \+ (\d+) \+ (\d+) \+ (\d+) by operations, ", said)
        self.assertEqual(sum(map(int, blocks.groups())), SIZES["num_hidden_layers"] + 2)
        # The step is number 100 of 2000 warm-up updates.
        self.assertRegex(said, r"\[0\] 0 TRAIN loss \d\.\d{4}  lm \d\.\d{4}e[+-]\d\d ns \d\.\d{4}e[+-]\d\d "
                               r"lr 5\.0500e-06, time \d+\.\d{4}\n")
        told = self.run_words("python3", ROOT / "python" / "train_bert.py", "--help").stdout
        told = " ".join(told.split())
        self.assertIn("--epochs EPOCHS passes over the data, or for BERT 100 steps each (default 100) ", told)
        for flag, default in (("--batch-size S", "64"),
                              ("--learning-rate RATE", "0.0001"), ("--warmup-steps WARMUP_STEPS", "2000"),
                              ("--data DATA", "~/.cache/hetu/datasets/wikicorpus_en")):
            self.assertRegex(told, rf"{flag} [^(]*\(default {re.escape(default)}\)")

    @unittest.skipUnless(_hetu.reads_images(), "this build cannot read images")
    def test_resnet(self):
        folder, events = self.folder / "images", self.folder / "runs"
        self.run_words("hetu", "data", "sample", folder, "--kind", "images", "--classes", 3, "--train", 8, "--val", 8,
                       "--size", 40)
        self.run_words("hetu", "data", "check", folder / "train")
        self.env.update(IMAGENET_TRAIN_ROOT=str(folder / "train"), IMAGENET_VAL_ROOT=str(folder / "val"))
        said = self.run_words("python3", ROOT / "python" / "train_resnet.py", "--dataset", "imagenet", "--size", 32,
                              "--batch-size", 8, "--learning-rate", "0.01", "--weight-decay", "1e-4", "--epochs", 2,
                              "--pipeline", "gpipe", "--threads", 1, "--name", events).stdout
        self.assertIn("Training 2 epoch, each epoch runs 3 iteration\n", said)
        for epoch in range(2):
            self.assertRegex(said, rf"(?m)^{epoch} TRAIN loss \d+\.\d{{4}} acc [01]\.\d{{4}} lr 1\.00e-02, "
                                   r"time \d+\.\d{4}$")
            self.assertRegex(said, rf"(?m)^{epoch} EVAL  loss \d+\.\d{{4}} acc [01]\.\d{{4}}")
        data = next(events.iterdir()).read_bytes()
        for tag in (b"Train/loss", b"Train/acc", b"Validation/loss", b"Validation/acc"):
            self.assertIn(tag, data)
        told = " ".join(self.run_words("python3", ROOT / "python" / "train_resnet.py", "--help").stdout.split())
        for flag, default in (("--batch-size S", "128"), ("--learning-rate RATE", "0.1"),
                              ("--weight-decay W", "0.0005"),
                              ("--dataset {cifar100,imagenet}", "cifar100")):
            self.assertRegex(told, rf"{flag} [^(]*\(default {re.escape(default)}\)")
        for model in (18, 34, 50, 101, 152):
            self.assertIn(f"resnet{model}", told)
        self.assertIn("default resnet18 ", told)

    @unittest.skipUnless(_hetu.reads_images(), "this build cannot read images")
    def test_cifar(self):
        folder = self.folder / "cifar"
        self.run_words("hetu", "data", "sample", folder, "--kind", "cifar100", "--train", 2, "--val", 2)
        said = self.run_words("python3", ROOT / "python" / "train_resnet.py", "--data", folder, "--batch-size", 8,
                              "--steps", 1, "--threads", 1, "--name", self.folder / "runs").stdout
        self.assertRegex(said, r"(?m)^0 TRAIN loss [45]\.")  # near ln 100

    def test_data_parallel(self):
        done = self.train((2, 1), "--pipeline", "dp", "--steps", 2)
        self.assertEqual(done.steps, [0, 1])

    def test_slurm(self):
        self.env.update(SLURM_JOB_NODELIST="localhost", SLURM_TASKS_PER_NODE="2")
        self.assertIn("[1] 2\n", self.run_words("heturun", "sh", "-c", "echo $OMPI_COMM_WORLD_SIZE").stdout)

    def test_pipedream(self):
        done = self.train((2, 2), "--pipeline", "pipedream", "--micro-batches", 1, "--steps", 5)
        self.assertEqual(done.steps, [0, 1, 2, 3, 4])
        self.assertIn("x 2 versions", done.out)

    def test_chimera_and_varuna(self):
        for options in [("chimera",), ("interleaved-1f1b", "--chunks", 2), ("varuna",), ("1f1b", "--with-recompute")]:
            done = self.train((1, 2), "--pipeline", *options, "--steps", 2)
            self.assertEqual(done.steps, [0, 1], options)

    def test_chimera_pdf(self):
        """The page's commands run unchanged in a folder with links to the tree's files."""
        small = "hetu simulate gpipe --stages 1 --micro-batches 1 --format pdf -o small.pdf"
        if "without cairo" in subprocess.run(shlex.split(small), capture_output=True, text=True, cwd=self.folder).stderr:
            self.skipTest("this build draws no pdf")
        block = re.search(r"```bash\n(mkdir -p bert_prof\n.*?)```", PAGE.read_text(), re.S)[1]
        (self.folder / "config").symlink_to(ROOT / "config")
        self.run_words("bash", "-e", "-c", block, cwd=self.folder)
        name = "bert-large_chimera_8stages_8gpus_microbs32_acc1.pdf"
        pdf = (self.folder / "bert_prof" / name).read_bytes()
        self.assertEqual(pdf[:5], b"%PDF-")
        title = b"/Title (chimera: 8 stages, 8 micro-batches, rehearsed with bert-large_p100.csv)"
        self.assertIn(title, pdf)

    def test_block_profiler(self):
        sizes = {"model_type": "opt", "hidden_size": 16, "num_attention_heads": 2, "ffn_dim": 32}
        (self.folder / "opt.json").write_text(json.dumps(sizes))
        self.run_words("hetu", "profile-blocks", "opt.json", "-o", "t.csv", "--largest", 2, "--sequence-length", 8,
                       "--warm-up", 1, "--runs", 1, "--threads", 1, cwd=self.folder)
        text = (self.folder / "t.csv").read_text()
        self.assertTrue(text.startswith("bs,time_f,time_b,time_kron,time_inv,time_prec,mem_param,mem_act,"), text)
        self.assertEqual(text.count("\n"), 3)

    def test_phase_one(self):
        for recipe in ("lamb", "kfac"):
            self.train((1, 2), "--pipeline", "1f1b", "--micro-batches", 2, "--steps", 2, "--config",
                       ROOT / "config" / "recipes" / f"phase1_{recipe}.yml")

    def test_one_byte(self):
        done = self.train((2, 2), "--pipeline", "1f1b", "--micro-batches", 2, "--steps", 2, "--payload", "one-byte:both")
        self.assertIn("meaningless (--payload one-byte:both): ", str(done))

    def test_chimera_copies(self):
        """The losses of copies, on shards of `hetu data sample`, equal those of one process with the same batch."""
        shards, model = self.folder / "shards", self.folder / "eight.json"
        write_prose(self.folder / "text.txt", 40)
        sample = ("hetu", "data", "sample", shards, "--text", self.folder / "text.txt")
        self.run_words(*sample, "--rows", 64, "--sequence-length", 32, "--max-predictions", 4)
        model.write_text(json.dumps({**SIZES, "num_hidden_layers": 8, "max_position_embeddings": 32}))
        common = ("--data", shards, "--model", model, "--steps", 3)
        # pipe_2_4 is SD-PIPE's own list, of hosts w0 to w7.
        for copies, stages in ((3, 4), (2, 8)) if WHOLE else ((3, 2),):
            with self.subTest(stages=stages):
                whole = 8 * copies
                alone = self.train((1, 1), *common, "--pipeline", "gpipe", "--batch-size", whole, "--micro-batches", whole)
                done = self.train((copies, stages), *common, "--pipeline", "chimera", "--batch-size", 8,
                                  "--micro-batches", 8)
                self.assertEqual(done.steps, [0, 1, 2])
                for mine, theirs in zip(done.losses, alone.losses, strict=True):
                    self.assertAlmostEqual(mine, theirs, delta=1e-4)

    @unittest.skipUnless(find_spec("torch"), "PyTorch is not there: ./run torch installs it")
    def test_varuna_wrapper(self):
        """The wrapper trains a case of torch_test.py, which compares more."""
        said = self.run_words("heturun", "-w", 2, sys.executable, TORCH / "torch_worker.py", self.folder,
                              7, "varuna 2 1", "varuna overflow 2 1").stdout
        self.assertEqual(said.count("CASE varuna 2 1: ") + said.count(" bits True "), 4, said)
        self.assertEqual(said.count("OVERFLOW"), 2, said)
        profiles = ("import sys; sys.path.insert(0, sys.argv[1]); import torch_varuna; from hetu.varuna import Profiler; "
                    "Profiler(torch_varuna.Model(False), torch_varuna.batch_of).profile_all([1])")
        self.run_words(sys.executable, "-c", profiles, TORCH, cwd=self.folder)
        self.assertIn("fwd", json.loads((self.folder / "profiles" / "compute-profile-0").read_text())["1"])

    def test_stops_and_saves(self):
        saved = self.folder / "saved"
        process, log = self.start((1, 2), "--steps", 1000000, "--checkpoint", saved)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 2), process.poll())
        process.send_signal(signal.SIGUSR1)
        _, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(manifest_of(saved)[1]["step"], log.read_text().count("\n"))


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--whole"]
    unittest.main(verbosity=2)
