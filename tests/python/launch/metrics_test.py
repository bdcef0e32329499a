"""heturun --metrics-port: what it answers, to whom, and the dashboard that shows it."""
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from hetu.launch.metrics import MOST, AddressError, Metrics, address_of
from hetu.launch.part import Worker
from hetu.launch.slow import Slow
from jobs_test import JobCase
from processes import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
MANY_S = 100.0
LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? (-?[0-9.e+-]+|NaN)')


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def parsed(text):
    """Returns {(name, labels): value} of a text in Prometheus' format, and checks that each name is described before."""
    found, described = {}, set()
    for line in text.splitlines():
        if head := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) .+", line):
            described.add((head[1], head[2]))
            continue
        name, labels, value = LINE.fullmatch(line).groups()
        assert {("HELP", name), ("TYPE", name)} <= described, line
        found[name, labels or ""] = float(value)
    return found


class Answers(JobCase):
    def get(self, path="/metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=MANY_S) as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            return answer.read().decode()

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def test_the_state_of_a_job(self):
        process, _ = self.start("--metrics-port", str(self.port))
        text = self.get()
        found = parsed(text)
        for name, value in (("step", 3), ("steps", 9), ("loss", 0.5), ("samples_per_second", 12.5)):
            self.assertEqual(found[f"hetu_{name}", ""], value)
        host = socket.gethostname()
        for worker in (0, 1):
            labels = f'worker="{worker}",host="{host}"'
            self.assertEqual(found["hetu_worker_up", labels], 1)
            self.assertEqual(found["hetu_worker_slow", labels], 0)
            self.assertGreater(found["hetu_worker_memory_bytes", labels], 1 << 20)
        self.assertNotIn(("hetu_tokens_per_second", ""), found, "there are none")
        if promtool := shutil.which("promtool"):
            subprocess.run([promtool, "check", "metrics"], input=text, text=True, check=True, capture_output=True)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.get("/else")
        self.assertEqual(caught.exception.code, 404)
        caught.exception.close()
        held = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(2 * MOST)]  # they send nothing
        for one in held[:4]:
            one.sendall(b"\r\n" * 3)
            one.close()
        self.assertTrue(wait_until(lambda: self.answers(), MANY_S), "silent connections don't block others for ever")
        for one in held:
            one.close()
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(MANY_S), 0, "the job isn't disturbed")

    def answers(self):
        try:
            return "hetu_step 3" in self.get()
        except OSError:
            return False

    def test_a_slow_reader_gets_all_of_a_long_answer(self):
        """The answer about 60,000 workers is longer than the buffers of a connection."""
        workers = [Worker(i, "elsewhere") for i in range(60000)]
        with selectors.DefaultSelector() as selector:
            metrics = Metrics(selector, ("127.0.0.1", self.port), "job", lambda: (workers, Slow(0), {}, None))
            parts = []

            def read():
                with socket.socket() as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    one.settimeout(MANY_S)
                    one.connect(("127.0.0.1", self.port))
                    one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                    time.sleep(0.5)
                    while data := one.recv(1 << 16):
                        parts.append(data)
            reader = threading.Thread(target=read)
            reader.start()
            while reader.is_alive():
                for key, _ in selector.select(timeout=0.1):
                    key.data()
            metrics.close()
        head, _, body = b"".join(parts).partition(b"\r\n\r\n")
        self.assertIn(f"Content-Length: {len(body)}".encode(), head)
        self.assertEqual(body.count(b"hetu_worker_up{"), len(workers))

    def test_wrong_addresses(self):
        with socket.create_server(("127.0.0.1", self.port)):
            _, error = self.heturun("-w", "1", "--metrics-port", str(self.port), "true", status=2)
        self.assertRegex(error, rf"heturun: --metrics-port: cannot listen at port {self.port} of 127\.0\.0\.1: Address "
                                r"already in use; choose another one\n$")
        for wrong in ("x", "70000", "0", "host:", "9400x"):
            says = f"--metrics-port {wrong}: it must be a port, such as 9400, or HOST:PORT"
            with self.assertRaisesRegex(AddressError, says):
                address_of(wrong)
        self.assertEqual(address_of("9400"), ("127.0.0.1", 9400))
        self.assertEqual(address_of("[::1]:9400"), ("::1", 9400))

    def test_the_dashboard_shows_metrics_that_exist(self):
        board = json.loads((ROOT / "config" / "grafana.json").read_text())
        used = {name for panel in board["panels"] for target in panel["targets"]
                for name in re.findall(r"hetu_\w+", target["expr"])}
        code = (ROOT / "python" / "hetu" / "launch" / "metrics.py").read_text()
        known = {f"hetu_{name}" for name in re.findall(r'\(+"([a-z_]+)", "(?:gauge|counter)"', code)}
        self.assertGreater(len(used), 9)
        self.assertEqual(used - known - {"hetu_progress_timestamp_seconds"}, set())


if __name__ == "__main__":
    os.environ.setdefault("HETU_BUILD_DIR", str(ROOT / "build"))
    unittest.main()
