"""Parameter servers without heturun, as users run them: `hetu ps serve` and hetu.ps, each in a separate process."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

import numpy as np

import hetu as ht
from hetu import _hetu

ROOT = str(pathlib.Path(__file__).resolve().parents[3])
LISTENS = re.compile(r"parameter server (\d+) of (\d+) listens at (.+); connect with (\S+)\n")


class Case(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(tempfile.TemporaryDirectory(prefix="hetu-test-"))
        self.keys = os.path.join(self.place, "job.keys")

    def serve(self, listen="tcp://127.0.0.1:*", server=0, servers=1, more=()):
        """Starts a server and returns it when it listens. It ends in order at the end of the test."""
        words = ["hetu", "ps", "serve", "--listen", listen, "--keys", self.keys, "--server", str(server), "--servers",
                 str(servers), *more]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        self.assertIsNotNone(said := LISTENS.fullmatch(process.stdout.readline()), process.poll())
        self.assertEqual((said[1], said[2], said[4]), (str(server), str(servers), self.keys))
        process.endpoint = said[3]
        return process

    def end(self, process, number=signal.SIGTERM):
        """Ends the server in order: status 0 and no further output."""
        if process.stdout.closed:
            return
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, rest), (0, ""), errors)

    def python(self, text, *arguments):
        """Starts a program that imports numpy and hetu."""
        words = [sys.executable, "-c", "import sys, numpy as np, hetu\n" + textwrap.dedent(text), self.keys, *arguments]
        process = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.bury, process)
        return process

    def bury(self, process):
        with contextlib.suppress(ValueError):
            process.kill()
            process.communicate()

    def refused(self, *arguments, status, says):
        """Checks that `hetu ps …` ends at once with one line."""
        ended = subprocess.run(["hetu", "ps", *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (status, "", 1), ended)
        self.assertRegex(ended.stderr, says)


class Serve(Case):
    def test_two_processes_sum_vectors_over_every_kind_of_endpoint_in_either_language(self):
        python = [sys.executable, os.path.join(ROOT, "docs", "examples", "sum_vectors.py")]
        cpp = [os.path.join(os.environ["HETU_BUILD_DIR"], "bin", "example_sum_vectors")]
        for listen in ("tcp://127.0.0.1:*", "tcp://0.0.0.0:0", f"ipc://{self.place}/a, b;c"):
            with self.subTest(listen):
                server = self.serve(listen)
                words = [[*example, self.keys, str(m), "2"] for m, example in enumerate((python, cpp))]
                for member, run in enumerate([subprocess.Popen(each, text=True, stdout=subprocess.PIPE) for each in words]):
                    self.assertEqual(run.communicate(timeout=60)[0], f"member {member}: 9 … 9\n")
                    self.assertEqual(run.returncode, 0)
                self.end(server, signal.SIGINT)
        self.assertEqual(os.stat(self.keys).st_mode & 0o777, 0o600)
        self.assertEqual(sorted(os.listdir(self.place)), ["job.keys"])

    def test_a_table_is_dealt_to_several_servers_and_has_the_optimizers_of_training(self):
        for server in range(3):
            self.serve(server=server, servers=3)
        draw = np.random.default_rng(16)
        first = draw.standard_normal((3, 700_001)).astype(np.float32)
        gradients = draw.standard_normal((4, *first.shape)).astype(np.float32)
        with ht.ps.connect(self.keys) as client:
            added = client.open("added", first)
            trained = client.open("trained", first, optimizer={"kind": "momentum", "momentum": 0.5}, rule="mean")
            expected, velocity, sums = first.copy(), np.zeros_like(first), first.copy()
            for gradient in gradients:
                added.push(gradient)
                trained.push(gradient, rate=0.125)
                sums += gradient
                velocity = np.float32(0.5) * velocity + gradient
                expected -= np.float32(0.125) * velocity
            client.flush()
            np.testing.assert_array_equal(added.read(least=4), sums)
            values, states, updates = trained.states()
            np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(states["momentum"], velocity, rtol=1e-6, atol=1e-6)
            self.assertEqual((list(states), updates), (["momentum"], 4))

    def test_a_pull_waits_for_the_slowest_and_says_for_whom(self):
        self.serve()
        slow, fast = (ht.ps.connect(self.keys, worker=m + 5, timeout=1) for m in range(2))
        tables = [client.open("t", np.zeros(3, np.float32), members=2, member=m) for m, client in enumerate((slow, fast))]
        tables[1].push([np.float32(1)] * 3)
        tables[1].pull(least=1)
        says = r'worker 6 waited 1 s .* table "t" \(a test\): for worker 5 \(0 updates of 1\)'
        with self.assertRaisesRegex(TimeoutError, says):
            tables[1].wait("a test")
        tables[1].pull(least=1)
        with self.assertRaisesRegex(ValueError, "a pull of table 't' is open"):
            tables[1].pull()
        slow.leave()
        np.testing.assert_array_equal(tables[1].wait(), [1, 1, 1])
        with self.assertRaisesRegex(ValueError, "has left its parameter servers"):
            tables[0].push(np.zeros(3, np.float32))
        fast.leave()

    def test_a_table_beyond_the_servers_memory_is_refused_and_others_go_on(self):
        self.serve(more=("--memory", "8MiB"))
        with ht.ps.connect(self.keys, worker=3) as client:
            small = client.open("small", np.zeros(1000, np.float32))
            wants = (r'parameter server 0 holds [\d.]+ MiB \(\d+ bytes\) of at most 8.0 MiB \(8388608 bytes\), and worker 4 '
                     r'needs [\d.]+ MiB \(\d+ bytes\) more for table "large"')
            with self.assertRaisesRegex(OSError, wants), ht.ps.connect(self.keys, worker=4) as other:
                other.open("large", np.zeros(5_000_000, np.float32))
            small.push(np.ones(1000, np.float32))
            np.testing.assert_array_equal(small.read(least=1), 1)

    def test_control_c_ends_a_call_that_waits(self):
        self.serve()
        waits = self.python("""
            client = hetu.ps.connect(sys.argv[1])
            table = client.open("t", np.zeros(3, np.float32), members=2, member=0)
            table.pull(least=1)
            try:
                print("waits", flush=True)
                table.wait()
            except KeyboardInterrupt:
                print("interrupted")
            """)
        self.assertEqual(waits.stdout.readline(), "waits\n")
        waits.send_signal(signal.SIGINT)
        self.assertEqual(waits.communicate(timeout=60), ("interrupted\n", ""))

    def test_without_the_key_one_gets_nothing_and_is_told_so(self):
        server = self.serve()
        other = os.path.join(self.place, "other.keys")
        lines = pathlib.Path(self.keys).read_text().splitlines()
        stranger = _hetu.service_keys(server.endpoint)["address"]
        public, secret = stranger[-128:-64], stranger[-64:]
        with open(os.open(other, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("\n".join(f"worker-key {public} {secret}" if line.startswith("worker-key") else line
                                 for line in lines) + "\n")
        with self.assertRaisesRegex(_hetu.CommError, f"parameter server 0 at {server.endpoint} refuses this worker's key"):
            ht.ps.connect(other)
        with self.assertRaisesRegex(_hetu.ConfigError, "has no keys; give the connection file"):
            ht.ps.connect(server.endpoint)
        server.send_signal(signal.SIGTERM)
        self.assertIn("refused a connection from a process without the job's key", server.communicate(timeout=60)[1])

    def test_a_path_that_a_killed_server_left_is_taken_over_and_one_in_use_is_not(self):
        listen = f"ipc://{self.place}/socket"
        killed = self.serve(listen)
        self.refused("serve", "--listen", listen, "--keys", self.keys, status=5, says="cannot listen at .*: it is in use")
        killed.kill()
        killed.communicate()
        self.serve(listen)
        with ht.ps.connect(self.keys) as client:
            client.open("t", np.ones(2, np.float32))

    def test_bad_input(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            at = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            self.refused("serve", "--listen", at, "--keys", self.keys, status=5, says=f"cannot listen at {at}: it is in use")
        good = ("--listen", "tcp://127.0.0.1:*", "--keys", self.keys)
        for more, says in {
            ("--listen", "localhost:1"): "hetu ps serve: an endpoint must be tcp://ADDRESS:PORT or ipc://PATH, got "
                                         "'localhost:1'",
            ("--listen", "tcp://localhost:1"): "'localhost' of tcp://localhost:1 is not an IPv4 address",
            ("--listen", "tcp://127.0.0.1:70000"): "70000",
            ("--listen", "ipc://" + "x" * 200): "must have 1 to 107 bytes, got 200",
            ("--server", "2", "--servers", "2"): "--server must be 0 to 1 with --servers 2, got 2",
            ("--servers", "0"): "--servers: ",
            ("--server", "-1"): "--server: ",
            ("--memory", "1KiB"): "--memory: must be 1MiB to 1048576GiB, got '1KiB'",
            ("more",): "takes options only, got 'more'",
        }.items():
            with self.subTest(more):
                self.refused("serve", *good, *more, status=2, says=says)
        self.refused("serve", "--keys", self.keys, status=2, says="needs --listen")
        self.refused("serve", "--listen", "tcp://127.0.0.1:*", status=2, says="needs --keys")

    def test_bad_connection_files(self):
        self.end(self.serve(servers=2))
        good = pathlib.Path(self.keys).read_text()
        listen = ("serve", "--listen", "tcp://127.0.0.1:*", "--keys", self.keys)
        self.refused(*listen, status=2,
                     says=f"{self.keys} is the connection file of 2 servers, not of 1; use another file, or --servers 2")
        with self.assertRaisesRegex(_hetu.ConfigError, "has no address of server 1 of 2"):
            ht.ps.connect(self.keys)
        os.chmod(self.keys, 0o640)
        self.refused(*listen, "--servers", "2", status=2,
                     says=r"holds keys, but other users may access it \(mode 640\); run chmod 600")
        with self.assertRaisesRegex(_hetu.ConfigError, "other users may access it"):
            ht.ps.connect(self.keys)
        os.chmod(self.keys, 0o600)
        key = "0123456789abcdef" * 4
        for text, says in {
            "": "line 1: .* is empty",
            "x\n" + good: "line 1: .* does not begin with 'hetu parameter servers 1'",
            good.replace("server-key", "server-keys"): "line 2: .* has a line with the unknown key 'server-keys'",
            good.replace(" at ", " "): "line 4: .* not of the form 'server K of N at ENDPOINTS'",
            good.replace("0 of 2", "2 of 2"): "line 4: .* not of the form",
            good + "server 0 of 3 at tcp://127.0.0.1:1\n":
                "line 5: .* different numbers of servers, of which the first is 2",
            f"hetu parameter servers 1\nserver-key {key} {key}x\n": "line 2: .* not 64 hexadecimal digits",
            f"hetu parameter servers 1\nserver-key {key} {key}\n": "line 2: .* no line worker-key",
            f"hetu parameter servers 1\nserver-key {key}\nworker-key {key}\n": "line 3: .* not 64 hexadecimal digits",
        }.items():
            with self.subTest(says):
                with open(self.keys, "w") as file:
                    file.write(text)
                with self.assertRaisesRegex(_hetu.ConfigError, f"{self.keys}, {says}"):
                    ht.ps.connect(self.keys)
        with self.assertRaisesRegex(OSError, "cannot be read: No such file"):
            ht.ps.connect(self.keys + ".none")


SAMPLE = re.compile(r'(hetu_ps_\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?\d+)')


class Status(Case):
    def status(self, *arguments, code=0):
        ended = subprocess.run(["hetu", "ps", "status", *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (code, ""))
        return ended.stdout

    def prometheus(self, text):
        """Returns {name: {labels: value}}. Checks every line: each metric occurs once, and its help and type precede its
        samples."""
        found, typed = {}, {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                helped = line.split()[2]
                self.assertNotIn(helped, found)
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.assertEqual(name, helped)
                typed[name] = kind
                found[name] = {}
                self.assertEqual(kind, "counter" if name.endswith("_total") else "gauge")
            else:
                sample = SAMPLE.fullmatch(line)
                self.assertIsNotNone(sample, line)
                self.assertEqual(sample[1], helped)
                self.assertNotIn(sample[2], found[sample[1]])
                found[sample[1]][sample[2]] = int(sample[3])
        return found

    def test_all_formats_say_the_same_of_clients_that_push_wait_leave_and_die(self):
        for server in range(2):
            self.serve(server=server, servers=2)
        name = 'a "name" \\ of\na table'
        clients = [ht.ps.connect(self.keys, worker=m + 5) for m in range(2)]
        tables = [client.open(name, np.zeros(1000, np.float32), members=3, member=m, optimizer="adam")
                  for m, client in enumerate(clients)]
        for table, pushes in zip(tables, (3, 1), strict=True):
            for _ in range(pushes):
                table.push(np.ones(1000, np.float32), rate=1e-3)
            table.read()
        killed = self.python("""
            client = hetu.ps.connect(sys.argv[1], worker=7)
            table = client.open(sys.argv[2], np.zeros(1000, np.float32), members=3, member=2, optimizer="adam")
            print("here", flush=True)
            sys.stdin.read()
            """, name)
        self.assertEqual(killed.stdout.readline(), "here\n")
        tables[0].pull(least=2)
        tables[0]._of.flush()

        said = self.until(lambda said: said["tables"][0]["waiting"])
        self.assertEqual([server["clients"] for server in said["servers"]], [{"connected": 3, "left": 0, "dead": 0}] * 2)
        self.assertTrue(all(server["received_bytes"] > 0 and server["sent_bytes"] > 0 and server["dropped_messages"] == 0
                            for server in said["servers"]))
        table, = said["tables"]
        self.assertEqual({key: table[key] for key in ("name", "elements", "row_width", "bytes", "pushes", "updates", "lag")},
                         {"name": name, "elements": 1000, "row_width": 0, "bytes": 12000, "pushes": 4, "updates": 4,
                          "lag": 3})
        self.assertIn("adam", table["rule"])
        self.assertEqual(table["members"], [{"worker": m + 5, "presence": "connected", "clock": clock}
                                            for m, clock in enumerate((3, 1, 0))])
        self.assertEqual(table["waiting"], [{"member": 0, "least": 2, "for": [1, 2]}])

        text = self.status(self.keys)
        self.assertIn("worker 5 waits for clock 2 of worker 6, worker 7", text)
        self.assertRegex(text, r"server 1 of 2 at tcp://.*: clients: 3 connected, 0 left, 0 dead; bytes: \d+ in, \d+ out")
        metrics = self.prometheus(self.status(self.keys, "--format", "prometheus"))
        label = 'table="a \\"name\\" \\\\ of\\na table"'
        self.assertEqual(metrics["hetu_ps_up"], {'server="0"': 1, 'server="1"': 1})
        self.assertEqual(metrics["hetu_ps_table_lag"], {label: 3})
        self.assertEqual(metrics["hetu_ps_table_waiting_pulls"], {label: 1})
        self.assertEqual(sorted(metrics["hetu_ps_member_clock"].values()), [0, 1, 3])

        killed.kill()
        clients[1].leave()
        said = self.until(lambda said: all(server["clients"]["dead"] for server in said["servers"]))
        self.assertEqual([m["presence"] for m in said["tables"][0]["members"]], ["connected", "left", "dead"])
        self.assertIn("worker 7 is dead: it is silent for 8 s", self.status(self.keys))
        dead = "(?s)worker 7, for whose update 2 .* worker 5 waits, is silent for 8 s"
        with self.assertRaisesRegex(_hetu.CommError, dead):
            tables[0].wait()
        clients[0].leave()

    def until(self, is_so):
        """Returns the status once `is_so` accepts it. The limit of the whole test applies."""
        while True:
            said = json.loads(self.status(self.keys, "--format", "json"))
            if is_so(said):
                return said

    def test_a_server_that_has_ended_is_named_and_the_others_are_told(self):
        servers = [self.serve(server=server, servers=2) for server in range(2)]
        self.end(servers[0])
        text = self.status(self.keys, "--timeout", "0.5", code=5)
        self.assertRegex(text, "^server 0 at tcp://.*: does not answer\nserver 1 of 2 at tcp://.*: clients: 0 connected")
        metrics = self.prometheus(self.status(self.keys, "--timeout", "0.5", "--format", "prometheus", code=5))
        self.assertEqual(metrics["hetu_ps_up"], {'server="0"': 0, 'server="1"': 1})

    def test_it_watches_until_it_is_ended(self):
        self.serve()
        watching = subprocess.Popen(["hetu", "ps", "status", self.keys, "--watch", "0.05"], text=True,
                                    stdout=subprocess.PIPE)
        for _ in range(3):
            self.assertRegex(watching.stdout.readline(), "^server 0 of 1 at ")
            self.assertEqual(watching.stdout.readline(), "\n")
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)

    def test_a_job_of_heturun_is_found_by_its_process_and_by_its_name(self):
        program = ("import os, sys, numpy as np, hetu; client = hetu.ps.connect(os.environ['HETU_SERVERS'], worker=3); "
                   "client.open('of heturun', np.zeros(5, np.float32)); print('here', os.environ['HETU_JOB'], flush=True); "
                   "open(sys.argv[1]).read(); "
                   "client.leave()")
        gate = os.path.join(self.place, "gate")
        os.mkfifo(gate)
        job = subprocess.Popen(["heturun", "-w", "1", "-s", "2", sys.executable, "-c", program, gate],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.bury, job)
        name = re.search(r"here (\S+)$", job.stdout.readline().rstrip())[1]
        for given in (str(job.pid), name):
            with self.subTest(given):
                said = json.loads(self.status("--job", given, "--format", "json"))
                table = said["tables"][0]
                self.assertEqual((len(said["servers"]), table["name"], table["members"][0]["worker"]), (2, "of heturun", 3))
        self.refused("status", "--job", name + "x", status=2,
                     says=f"no worker of job '{name}x' runs on this host as your user")
        with open(gate, "w"):
            pass
        errors = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 0, errors)
        for given in (str(job.pid), name):
            self.refused("status", "--job", given, status=2,
                         says=f"no worker of job '{given}' runs on this host as your user")

    def test_bad_input(self):
        for arguments, says in {
            (): "needs exactly one FILE, ADDRESS or --job NAME",
            ("a", "b"): "needs exactly one FILE",
            ("a", "--job", "b"): "needs exactly one FILE",
            ("a.none",): "a.none cannot be read: No such file",
            ("tcp://127.0.0.1:1",): "has no keys; give the connection file",
            ("--job", "nobody"): "of job 'nobody'",
            ("a", "--format", "xml"): "--format: ",
            ("a", "--watch", "0"): "--watch: must be above 0 s and at most 1000000 s, got 0",
        }.items():
            with self.subTest(arguments):
                self.refused("status", *arguments, status=2, says=says)


class Arguments(Case):
    def test_arrays_and_options_that_do_not_fit(self):
        self.serve()
        with ht.ps.connect(self.keys) as client:
            table = client.open("t", np.zeros((2, 3), np.float32))
            for call, says in (
                (lambda: table.push(np.zeros((2, 3))), "update must be float32, not float64"),
                (lambda: table.push(np.zeros(6, np.float32)), r"update must have the table's shape \(2, 3\), not \(6,\)"),
                (lambda: table.push(np.zeros((2, 3), np.float32), rate=1), "has no optimizer: push without a rate"),
                (lambda: table.wait(), "no pull of table 't' is open"),
                (lambda: client.open("u", np.zeros(0, np.float32)), "must have 1 to .* elements, not 0"),
                (lambda: client.open("u", np.zeros(1, np.float32), member=1), "must be 0 to 0, not 1"),
                (lambda: client.open("u", np.zeros(1, np.float32), rule="all"), "each"),
                (lambda: client.open("u", np.zeros(1, np.float32), optimizer="lamb"), "lamb"),
                (lambda: client.open("u", np.zeros(1, np.float32), optimizer={"kind": "sgd", "momentum": 1}), "momentum"),
                (lambda: ht.ps.connect(self.keys, timeout=0), "timeout must be above 0 s, got 0"),
            ):
                with self.subTest(says), self.assertRaisesRegex(ValueError, says):
                    call()


if __name__ == "__main__":
    unittest.main()
