"""heturun watch without a browser: the state of jobs that run, end, fail or are killed, and the server, which answers only
those who know its token."""
import http.client
import json
import math
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest
import unittest.mock

from hetu.launch import found, run_folder, watch, watched
from jobs_test import HETURUN, MANY_S, JobCase
from processes import wait_until

FAILS = """
import os, sys, time
worker = int(os.environ["OMPI_COMM_WORLD_RANK"])
print("hello of", worker, flush=True)
if worker == 1:
    raise ValueError("a wrong number")
time.sleep(60)
"""


class ServedCase(JobCase):
    def serve(self, path):
        """Serves the page of a run folder in this process."""
        self.server = watch.Server(watched.Watched(path), 0)
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.addCleanup(lambda: (self.server.shutdown(), thread.join(), self.server.server_close()))

    def ask(self, path, host=None, method="GET"):
        """Returns (status, headers, body) of a request."""
        one = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=MANY_S)
        one.putrequest(method, path, skip_host=True)
        if host != "":
            one.putheader("Host", host or f"127.0.0.1:{self.server.server_port}")
        one.endheaders()
        answer = one.getresponse()
        found = answer.status, answer.headers, answer.read()
        one.close()
        return found

    def get(self, name):
        status, _, body = self.ask(f"/{self.server.token}/{name}")
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def made(self):
        """Returns the path of the run folder of a job that has ended."""
        path = os.path.join(self.folder, "made")
        os.mkdir(path)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("HETU_RUN_FOLDER", None)
            one = run_folder.RunFolder(path, lambda text: None)
            one.begin("0123456789ab", ["python3", "<b>train</b>.py"], [])
            one.progress({"step": 3, "total": 9, "loss": math.nan, "samples_per_s": 12.5}, None, "step 3/9")
            one.output(0, True, b"hello\n")
            one.end([], None, 0)
            one.leave()
        job = pathlib.Path(path, "job.json")
        job.write_text(json.dumps({**json.loads(job.read_text()), "pid": 0}))  # not that of this process, which runs
        return path


class Server(ServedCase):
    def setUp(self):
        super().setUp()
        self.serve(self.made())

    def test_answers_nobody_without_the_token(self):
        token = self.server.token
        self.assertGreater(len(token), 30)
        for path in ("/", "/state", "/favicon.ico", f"/{token[:-1]}/", f"/{token}x/", f"/{token.swapcase()}/state", "//",
                     f"/x/../{token}/state", "http://127.0.0.1/", "/%00/", "/%C3%A9/"):
            with self.subTest(path=path):
                status, headers, body = self.ask(path)
                self.assertEqual(status, 403)
                self.assertNotIn(token, f"{headers}{body}")
        self.assertEqual(self.ask(f"/{token}/")[0], 200)
        self.assertEqual(self.ask(f"/{token}")[1]["Location"], f"/{token}/")

    def test_answers_no_other_name_of_this_host(self):
        """A page of another site that lets its own name point to 127.0.0.1 gets nothing, even with the token."""
        path = f"/{self.server.token}/state"
        for host in ("example.org", f"example.org:{self.server.server_port}", "127.0.0.1.example.org", "localhost.", "",
                     "0.0.0.0", "127.0.0.1:x", "127.0.0.1@example.org"):
            with self.subTest(host=host):
                self.assertEqual(self.ask(path, host)[0], 403)
        for host in ("localhost:9", "127.0.0.1", "LocalHost", "[::1]:80"):  # as ssh -L makes them
            self.assertEqual(self.ask(path, host)[0], 200)

    def test_gives_no_other_files(self):
        pathlib.Path(self.folder, "secret.log").write_text("secret")
        pathlib.Path(self.folder, "made", "worker-0.log.bak").write_text("secret")
        token = self.server.token
        for name in ("../secret.log", "..%2fsecret.log", "watch.py", "../watch.py", "%2e%2e/watch.py", "job.json",
                     "log?of=../secret.log", "log?of=..%2Fsecret.log", "log?of=job.json", "log?of=worker-0.log.bak",
                     "log?of=worker-0.log%00", "log?of=worker-0.log%0a", "log?of=", "log", "log?of=/etc/passwd",
                     "timeline.svg", "curve.js/", "/index.html"):
            with self.subTest(name=name):
                status, _, body = self.ask(f"/{token}/{name}")
                self.assertEqual(status, 404)
                self.assertNotIn(b"secret", body)
        self.assertEqual(self.ask(f"/{token}/log?of=worker-7.log")[0], 200, "it may print later")

    def test_headers(self):
        for name in ("", "watch.js", "curve.js", "watch.css", "state", "losses"):
            status, headers, body = self.ask(f"/{self.server.token}/{name}")
            self.assertEqual(status, 200)
            policy = headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual((headers["Referrer-Policy"], headers["Cache-Control"]), ("no-referrer", "no-store"))
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertNotIn("Access-Control-Allow-Origin", headers)
            self.assertNotIn(b"://", body.replace(b"http://www.w3.org/2000/svg", b""), "it names no other host")
            head = self.ask(f"/{self.server.token}/{name}", method="HEAD")
            self.assertEqual((head[0], head[2]), (200, b""))
        self.assertEqual(self.ask(f"/{self.server.token}/state", method="POST")[0], 501)

    def test_a_loss_that_is_no_number_is_json(self):
        state = self.get("state")
        self.assertEqual((state["loss"], state["step"], state["state"], state["status"]), ("nan", "3/9", "finished", 0))
        self.assertEqual(state["command"], "python3 '<b>train</b>.py'")
        self.assertEqual(self.get("losses"), {"groups": [[3, 3, None, None, None]], "points": 1, "not_numbers": [3, 3, 1]})

    def test_silent_connections_block_others_only_until_they_end(self):
        def answers():
            try:
                return self.ask(f"/{self.server.token}/losses")[0] == 200
            except (OSError, http.client.HTTPException):
                return False
        self.assertTrue(answers())
        held = [socket.create_connection(("127.0.0.1", self.server.server_port)) for _ in range(watch.MOST)]
        self.assertTrue(wait_until(lambda: not answers(), MANY_S), "there are at most so many connections")
        for one in held:
            one.close()
        self.assertTrue(wait_until(answers, MANY_S))

    def test_a_folder_that_is_removed(self):
        path = self.server.watched.path
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
        state = self.get("state")
        self.assertEqual(state["state"], "gone: its run folder was removed")
        self.assertEqual(self.get("losses")["points"], 0)
        self.assertEqual(self.get("log?of=worker-0.log")["lines"], [])


class Watched(ServedCase):
    def test_a_job_that_ends_while_it_is_watched(self):
        process, path = self.start()
        self.serve(path)
        state = self.get("state")
        row = self.rows()[self.name]
        for key in ("job", "state", "step", "loss", "rate"):
            self.assertRegex(row, rf"(^| ){re.escape(state[key])} ")
        self.assertEqual((state["state"], state["step"], state["done"], state["alive"]), ("runs", "3/9", [3, 9], True))
        self.assertEqual([w["pid"] for w in state["workers"]],
                         [line.split()[2] for line in self.heturun("ps", self.name)[0].splitlines()[-2:]])
        self.assertEqual(state["logs"], ["worker-0.log", "worker-1.log", "heturun.log"])
        self.assertTrue(wait_until(lambda: self.get("losses")["points"] == 3, MANY_S))
        first = self.get("log?of=worker-1.log")
        self.assertEqual({line[2]: line[1] for line in first["lines"]}, {"hello of 1": False, "a warning": True})
        self.heturun("stop", self.name)
        self.assertEqual(process.wait(MANY_S), 0, "watching doesn't disturb the job")
        state = self.get("state")
        self.assertEqual((state["state"], state["kind"], state["status"], state["alive"]), ("finished", "done", 0, False))
        self.assertTrue(state["ended"])
        more = self.get(f"log?of=worker-1.log&from={first['next']}")
        self.assertEqual([line[2] for line in more["lines"]], ["saved by 1"])
        self.assertIn("SIGUSR1 sent to 2 workers: checkpoint and exit", [text for _, text in state["messages"]])
        self.assertNotIn("step 1/9", json.dumps(state["messages"]), "progress isn't a message")

    def test_a_killed_job(self):
        process, path = self.start()
        self.serve(path)
        process.kill()
        process.wait()
        state = self.get("state")
        self.assertEqual((state["state"], state["kind"], state["status"]), ("killed", "bad", None))

    def test_a_job_that_fails(self):
        """The traceback of the worker that failed is on the page, in its log, and in `heturun logs`."""
        pathlib.Path(self.folder, "fails.py").write_text(FAILS)
        self.heturun("-w", "2", "--run-dir", "failed", "--log-dir", self.folder, "python3", "fails.py", status=1)
        self.serve(os.path.join(self.folder, "failed"))
        state = self.get("state")
        self.assertEqual((state["state"], state["kind"]), ("ended: status 1", "bad"))
        self.assertRegex(state["messages"][-1][1],
                         r"^worker 1 \(\S+, pid \d+\) exited with status 1; ending the other 1 worker$")
        (worker, end, lines), = state["words"]
        self.assertEqual((worker, end), (1, "exited with status 1"))
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertEqual(lines[-1], "ValueError: a wrong number")
        self.assertIn("! ValueError: a wrong number\n", self.heturun("logs", "failed", "1")[0])
        self.assertIn("ValueError: a wrong number\n", pathlib.Path(self.folder, "worker-1.err").read_text())

    def test_a_later_job_in_the_folder(self):
        """The page then shows that job, and no messages of the one before."""
        pathlib.Path(self.folder, "fails.py").write_text(FAILS)
        self.heturun("-w", "2", "--run-dir", "mine", "python3", "fails.py", status=1)
        self.serve(os.path.join(self.folder, "mine"))
        self.get("state")
        time.sleep(1.1)  # the beginning of a job is known to the second
        self.heturun("-w", "1", "--run-dir", "mine", "true")
        state = self.get("state")
        self.assertEqual((state["state"], len(state["workers"]), state["messages"]), ("finished", 1, []))


class Command(JobCase):
    def start_watch(self, *args, **more):
        """Starts heturun watch. Returns (process, its first line, the address in it)."""
        process = subprocess.Popen(  # a shell starts background jobs so that they ignore SIGINT
            [*HETURUN, "watch", *args], env={**self.env, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.folder, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/$", line.rstrip())
        self.assertTrue(found, line)
        return process, line, found[0]

    def test_serves_until_ctrl_c(self):
        _, path = self.start()
        process, line, address = self.start_watch("--no-open")  # the only job
        self.assertTrue(line.startswith(f"job {self.name} (runs): "), line)
        state = json.loads(urlopen(address + "state"))
        self.assertEqual((state["job"], state["path"]), (self.name, path))
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(MANY_S), process.stderr.read()), (0, ""))
        self.assertEqual(self.rows()[self.name].split()[1], "runs", "the job goes on")

    def test_the_browser_gets_a_file_that_others_cannot_read(self):
        """All users can read the arguments of a browser."""
        script = pathlib.Path(self.folder, "browser")
        script.write_text(f'#!/bin/sh\ncd {self.folder}; echo "$@" > given.tmp && mv given.tmp given\n')
        script.chmod(0o755)
        self.heturun("-w", "1", "--run-dir", "mine", "true")
        process, _, address = self.start_watch("mine", DISPLAY=":9", BROWSER=f"{script} %s")
        given = pathlib.Path(self.folder, "given")
        self.assertTrue(wait_until(given.exists, MANY_S))
        file = pathlib.Path(given.read_text().strip().removeprefix("file://"))
        self.assertNotIn(address.split("/")[3], given.read_text())
        self.assertIn(f'content="0; url={address}"', file.read_text())
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)
        process.terminate()
        self.assertEqual(process.wait(MANY_S), 143)
        self.assertFalse(file.parent.exists())

    def test_wrong_words_are_one_line(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.heturun("-w", "1", "--run-dir", "mine", "true")
            cases = ((("zz",), 2, "heturun watch: no job 'zz' on this host or in runs: give a name that heturun ps -a "
                                  "lists"),
                     (("mine", "--port", port), 2, rf"heturun watch: --port {port}: cannot listen at port {port} of "
                                                   r"127\.0\.0\.1: Address already in use; choose another one, or leave "
                                                   r"--port out"),
                     (("mine", "--port", "70000"), 2, "heturun watch: --port 70000: it must be a port from 1 to 65535"))
            for words, code, says in cases:
                with self.subTest(words=words):
                    out, error = self.heturun("watch", *words, status=code)
                    self.assertEqual(out, "")
                    self.assertRegex(error, rf"\A{says}.*\n\Z")

    def test_without_a_name_there_must_be_one_job(self):
        with unittest.mock.patch.object(found, "living", lambda: []):
            with self.assertRaisesRegex(found.JobError, "^no job runs on this host: give a run folder, or a name that "
                                                       "heturun ps -a lists$"):
                found.only()
        paths = []
        for number in (1, 2):
            paths.append(os.path.join(self.folder, str(number)))
            os.mkdir(paths[-1])
            pathlib.Path(paths[-1], "job.json").write_text(json.dumps({"job": f"{number}" * 12}))
        with unittest.mock.patch.object(found, "living", lambda: paths):
            with self.assertRaisesRegex(found.JobError, "^jobs 111111, 222222 run on this host: name one, as in heturun "
                                                       "watch 111111$"):
                found.only()


def urlopen(address):
    import urllib.request

    with urllib.request.urlopen(address, timeout=MANY_S) as answer:
        return answer.read()


if __name__ == "__main__":
    unittest.main()
