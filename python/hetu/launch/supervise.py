"""heturun's main loop: starts the workers, receives frames of every worker's guard, forwards output, and ends everything
when it must.

The exit status is computed here from the guards' reports, because mpirun may return 0 after a kill.
"""
import json
import os
import secrets
import selectors
import signal
import time

from hetu.counted import counted
from hetu.launch import elastic_trainings, folders, frames, guard, last_words, output, processes
from hetu.launch.hangs import Hangs
from hetu.launch.links import Events as LinkEvents
from hetu.launch.links import Links
from hetu.launch.metrics import Metrics
from hetu.launch.part import COMM, FORCE_ALL_S, FORCE_LOST_S, STOPPED, TIMEOUT, Part, Worker, signal_name, status_of
from hetu.launch.run_folder import RunFolder
from hetu.launch.services import Job as ServedJob
from hetu.launch.services import Loop, Servers, Services
from hetu.launch.slow import Slow

IO = 4  # exit status as in hetu.process.errors
TOLD_WRONG = (2, 3)  # exit codes for an invalid command line or cluster, see hetu.process.errors
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


class Job:
    """One job, from the start of its workers to the exit status. A job of several parts continues without those that fail.

    workers: the number of workers.
    addresses: this host's IPv4 addresses for other hosts; empty for a job on this host.
    timeout_s: time limit for the start.
    display: draws progress.
    say: prints heturun's own lines.
    servers: the parameter servers that workers may use.
    hang_limit_s: see hangs.py.
    slow_limit: see slow.py.
    """

    def __init__(self, workers, addresses, timeout_s, display, say, parts=1, servers=None, hang_limit_s=0.0,
                 slow_limit=0.0):
        servers = servers or Servers()
        self.name = secrets.token_hex(6)
        self.directories = []
        self._locks = []  # on the directories
        self._workers = [Worker(i) for i in range(workers)]
        each = workers // parts
        self._parts = [Part(i, self._workers[i * each:(i + 1) * each]) for i in range(parts)]
        self._timeout_s = timeout_s
        self._display = display
        self._say_line = say
        self._selector = selectors.DefaultSelector()
        self._sweep(*filter(None, [servers.folder]))
        place = None if addresses else self.make_directory(folders.short_place())
        self._links = Links(self._selector, self._workers, place, addresses, timeout_s,
                            LinkEvents(self._take_frame, self._lose_guard))
        self.address = self._links.address
        loop = Loop(self._selector, lambda text: self._forward(b"", 2, text), self._say, self._lose_pipeline,
                    self._lose_service, lambda: self._ended_at is not None)
        self._services = Services(ServedJob(self.name, place, addresses, self._workers, self._parts), servers,
                                  self._log_folder(servers, place), loop)
        self._statuses = {}
        self._stop_watch = processes.StopWatch()
        self._hangs = Hangs(hang_limit_s)
        self._slow = Slow(slow_limit)
        self._watched_at = 0.0
        self._reporter = None  # the worker whose progress is drawn
        self._record, self._record_at = {}, None  # the last report of progress, and its time
        self._metrics = None
        self._raw = None  # joins the workers' output if it is not tagged
        self._logs = None  # an output.Logs that also receives the workers' output
        self._run = RunFolder(None, say)
        self._will_save = False
        self._names_hosts = False  # in the tags of lines
        self._names_pids = False  # of workers that start
        self._asked = False  # the workers were asked to save and end
        self._interrupted = False  # by Ctrl-C
        self._ended_at = None  # time of the decision to end
        self._last_lines = set()  # last lines of parts, to print each only once
        self._code = None
        self._forced = False  # everything on this host was killed

    # -- set-up --------------------------------------------------------------------------------------------------------

    def make_directory(self, parent):
        """Creates a folder of this job, which is removed at its end. Returns its path."""
        path, locks = folders.make(parent, self.name)
        self.directories.append(path)
        self._locks += locks
        return path

    def answer(self, address):
        """Answers requests for the job's state at this (host, port), until its end. Raises AddressError."""
        self._metrics = Metrics(self._selector, address, self.name,
                                lambda: (self._workers, self._slow, self._record, self._record_at))

    def _log_folder(self, servers, place):
        """Returns the folder for logs of servers that heturun starts itself, or "" if they keep none or don't exist."""
        if not servers.restart or "" not in servers.hosts:
            return ""
        return self.make_directory(servers.folder or folders.short_place()) if servers.folder or place is None else place

    def _sweep(self, *more):
        removed = folders.sweep([folders.short_place(), "/dev/shm", *more])
        if removed:
            self._say_line(f"removed {', '.join(removed)}: left by a job that was killed, and not in use by any process")

    def close(self):
        """Ends the remaining processes of the job on this host, and removes its folders."""
        if self._metrics is not None:
            self._metrics.close()
        self._services.close()
        processes.kill_descendants(self._statuses)
        self._links.close()
        self._selector.close()
        folders.remove(self.directories)
        folders.remove_open_mpi([part.process.pid for part in self._parts
                                 if part.process and (part.code(self._statuses) or 0) < 0])
        for lock in self._locks:
            os.close(lock)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, commands, raw=False, saves=False, hosts=1, verbose=False, log_dir=None, run_folder=None):
        """Runs a starter (mpirun or run_workers.py) per part to the end of the job. Returns the exit status.

        commands: the StartCommand of each part.
        raw: True forwards standard output of workers unchanged.
        saves: True if workers are expected to save, until they report it themselves.
        hosts: the number of hosts with workers. With several, tags of lines contain the host.
        verbose: True prints the process id of each worker that starts.
        log_dir: a folder for files with the workers' output.
        run_folder: the RunFolder of the job.
        """
        self._run = run_folder or self._run
        self._will_save = saves
        self._names_hosts = hosts > 1
        self._names_pids = verbose
        self._logs = output.Logs(log_dir) if log_dir else None
        self._raw = output.Raw() if raw else None
        processes.adopt_orphans()
        wakeup, wakeup_end = os.pipe()
        for descriptor in (wakeup, wakeup_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for number in processes.unignored(SIGNALS):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # signals that arrived before are handled now
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._take_signals(wakeup))
        if not self._open_services():
            self._run.end(self._workers, self._slow, self._code)
            return self._code
        for part, command in zip(self._parts, commands, strict=True):
            more = dict(command.environment, HETU_JOB=self.name, HETU_CONTROL_TOKEN=self._links.token,
                        HETU_PATH=command.environment.get("PATH", os.defpath), **self._services.environment())
            for number, stream in part.start(command._replace(environment=more), self._locks,
                                             remote=self.address.startswith("tcp:")):
                self._selector.register(stream, selectors.EVENT_READ, lambda part=part, number=number, stream=stream:
                                        part.take(number, stream) or self._selector.unregister(stream))
        # After the forks that run Python in the child, because this starts a second thread.
        self._links.start_heartbeats(*self._services.beats)
        self._started = time.monotonic()
        while not self._done():
            self._turn(0.1 if self._busy() else 1.0)
            self._tick(time.monotonic())
        self._display.close()
        self._show_starters()
        if self._record:
            self._note({"step": self._record["step"]})
        self._run.end(self._workers, self._slow, self._code)
        return self._code

    def _turn(self, patience_s):
        """Waits up to `patience_s` for events, and handles them."""
        for key, _ in self._selector.select(timeout=patience_s):
            key.data()
        processes.reap(self._statuses)

    def _open_services(self):
        """Returns true once all services listen, and false if the end of the job was decided before. Raises OSError if a
        service can't start."""
        self._services.listen()
        while not self._services.ready and self._ended_at is None:
            self._turn(1.0)
            for beat in self._services.beats:
                beat()
            self._services.check(self._statuses, time.monotonic())
        return self._ended_at is None

    def _busy(self):
        return self._ended_at is not None or any(
            part.failed_at is not None or part.process.pid in self._statuses for part in self._parts)

    def _done(self):
        if self._code is None or any(part.process.pid not in self._statuses for part in self._parts):
            return False
        return self._forced or all(part.ended(self._statuses) and not self._links.of(part) for part in self._parts)

    def _take_signals(self, wakeup):
        for number in os.read(wakeup, 4096):
            if number == signal.SIGUSR1:
                self._ask_to_save(f"SIGUSR1 sent to {self._all()}: {self._save_words()}")
            elif number == signal.SIGINT and self._ended_at is None and not self._interrupted and self._saves():
                self._interrupted = True
                self._ask_to_save(f"SIGINT: SIGUSR1 sent to {self._all()}: checkpoint and exit; a second SIGINT ends "
                                  "them at once")
            elif number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                twice = self._interrupted if self._ended_at is None else self._code == 128 + number
                unsaved = any(w.training == "unsaved" for w in self._workers if w.code is None)
                self._end(128 + number, f"{signal_name(number)}: ending {self._others()}"
                          + "; nothing is saved: no checkpoint folder was given" * unsaved)
                if twice:
                    self._links.signal(signal.SIGKILL)

    def _saves(self):
        """Returns true if the living workers save when they are asked to: by their reports or, without one, by the command
        line."""
        said = {worker.training for worker in self._workers if worker.code is None} - {""}
        return "saves" in said if said else self._will_save

    def _save_words(self):
        """Describes what workers do at SIGUSR1, by their reports."""
        unsaved = any(w.training == "unsaved" for w in self._workers if w.code is None)
        return "exit; nothing is saved: no checkpoint folder was given" if unsaved else "checkpoint and exit"

    def _ask_to_save(self, text):
        self._asked = True
        self._say(text)
        self._links.signal(signal.SIGUSR1)

    def _lose_guard(self, worker, is_silent):
        if worker.told:  # mpirun ends the worker, and has killed its guard before the guard could report
            self._lose_worker(worker, -signal.SIGTERM)
        elif is_silent:
            worker.part.lost_host = True
            why = f"is silent for {guard.DEAD_S:g} s: its host or the network is lost, or its guard is stopped"
            self._lose_worker(worker, -signal.SIGKILL, why)
        else:
            self._lose_worker(worker, -signal.SIGKILL, "is gone without a report: its guard was killed or its host is lost")

    def _lose_worker(self, worker, code, error=""):
        """Notes a worker's end that its guard has not reported."""
        if worker.code is None:
            worker.code, worker.error = code, error
            worker.part.note_failure()
            self._services.tell(worker)

    def _take_frame(self, worker, kind, payload):
        if kind in (frames.OUT, frames.ERR):
            self._log(worker, kind == frames.OUT, payload)
        if kind == frames.HELLO:
            self._take_hello(worker, json.loads(payload))
        elif kind == frames.OUT and self._raw is not None:
            self._put(1, self._raw.join(worker, payload))
        elif kind in (frames.OUT, frames.ERR):
            self._forward(self._tag(worker), 1 if kind == frames.OUT else 2, payload)
        elif kind == frames.STARTED:
            worker.pid, worker.started = int(json.loads(payload)["pid"]), True
            if self._names_pids:
                self._say(f"{worker.describe()} has started")
        elif kind == frames.PROGRESS:
            self._take_progress(worker, json.loads(payload))
        elif kind == frames.TOLD:
            worker.told = True
        elif kind == frames.STOPPED:
            self._take_stopped(worker, json.loads(payload))
        elif kind == frames.EXIT:
            report = json.loads(payload)
            worker.code, worker.error, worker.started = int(report["code"]), report["error"], True
            worker.words = report["words"].encode()
            if worker.words:
                self._log(worker, False, worker.words)
            if worker.code != 0:
                worker.part.note_failure()
                self._services.tell(worker)

    def _take_hello(self, worker, hello):
        worker.host, worker.guard = str(hello["host"]), int(hello.get("pid", 0))
        if hello["protocol"] != frames.PROTOCOL:
            worker.code = 1
            worker.error = (f"its host {worker.host} has another version of Hetu (protocol {hello['protocol']}, here "
                            f"{frames.PROTOCOL}); install the same on all hosts")
            worker.part.note_failure()
        if self._ended_at is not None or worker.part.lost_at is not None:
            self._links.signal(signal.SIGTERM, [worker])
        elif self._asked:
            self._links.signal(signal.SIGUSR1, [worker])

    def _take_progress(self, worker, record):
        if "beat" in record:
            worker.beat = record["beat"]
            self._hangs.take(worker, worker.beat, time.monotonic())
            if text := self._slow.take(worker, worker.beat, time.monotonic()):
                self._run.status(self._workers, self._slow, at_once=True)  # heturun ps says it as soon as this line does
                self._say(text)
            return
        if "elastic" in record:
            self._note(record["elastic"])
        if "saved" in record:
            self._run.note("checkpoint", {**record["saved"], "time": time.time()})
        if "trace" in record:
            self._run.note("trace", record["trace"])
        worker.training = record.get("training", worker.training)
        worker.mpi = record.get("mpi", worker.mpi)
        if worker.part.lost_at is not None:
            return
        if self._reporter is None and "step" in record:
            self._reporter = worker
        if worker is not self._reporter:
            return
        if "step" in record:
            self._record, self._record_at = record, time.time()
            self._display.show(record)
            self._run.progress(record, self._display.eta_s(), self._display.text())
        elif record.get("closed"):
            self._display.close()
            self._reporter = None

    def _note(self, note):
        """Writes a worker's note for heturun --elastic, which has started this heturun for one round."""
        if path := os.environ.get(elastic_trainings.NOTES):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(note) + "\n")

    # -- stopped processes -----------------------------------------------------------------------------------------------

    def _take_stopped(self, worker, stopped):
        """Handles a stopped process that a guard has reported, or one that runs again. A stopped worker may continue later,
        and the others notice it if they wait for it. Without its daemon, a host can neither start nor end workers."""
        pid = int(stopped["pid"])
        is_worker, ends = stopped["what"] == "worker", self._ended_at is not None or worker.part.lost_at is not None
        if is_worker:
            worker.stopped = "resumed" not in stopped
        if "resumed" in stopped:
            if is_worker and not ends:  # otherwise heturun itself resumes it, so that it can end
                self._say(f"{worker.describe()} runs again")
        elif is_worker:
            self._say(f"{worker.describe()} {STOPPED}; `kill -CONT {pid}` on {worker.host} resumes it")
        elif not ends:
            self._fail(worker.part, COMM, f"Open MPI's daemon on {worker.host} (pid {pid}) {STOPPED}")

    def _check_stopped(self, now):
        """Gives up a worker whose guard on this host is stopped, because nothing receives its output, and a part whose
        starter is stopped. Guards of other hosts fall silent instead."""
        if now - self._watched_at < guard.HEARTBEAT_S:
            return
        self._watched_at = now
        guards = {worker.guard: worker for worker in self._workers if worker.code is None and self._has_guard_here(worker)}
        starters = {part.process.pid: part for part in self._parts
                    if part.lost_at is None and part.process.pid not in self._statuses}
        for pid in self._stop_watch.stay_stopped([*guards, *starters], now):
            if pid in guards:
                self._lose_stopped_guard(guards[pid])
            elif self._ended_at is None:
                self._fail(starters[pid], COMM, f"{starters[pid].name} (pid {pid}) {STOPPED}")
                processes.signal_to(os.kill, pid, signal.SIGCONT)  # so that it can end

    def _has_guard_here(self, worker):
        return worker.guard and not self.address.startswith("tcp:")

    def _lose_stopped_guard(self, worker):
        self._lose_worker(worker, -signal.SIGKILL, f"is lost: its guard (pid {worker.guard}) {STOPPED}")
        processes.signal_to(os.kill, worker.guard, signal.SIGKILL)

    def _check_hangs(self, now):
        """Warns of parts whose workers make no progress, and gives them up at their limit."""
        for part, text, must_end in self._hangs.look([p for p in self._parts if p.lost_at is None], now):
            if must_end:
                self._note({"hangs": True})
                self._fail(part, TIMEOUT, text, ends="ending")
            else:
                self._say(text)

    # -- services ------------------------------------------------------------------------------------------------------

    def _lose_pipeline(self, part, reason):
        """Handles a pipeline that the coordinator has given up. The coordinator notices by silence what a guard can't see.
        If heturun itself has reported the failure to it, or finds a stopped guard, heturun determines the cause."""
        if len(self._parts) > 1 and self._ended_at is None and part.lost_at is None and part.failed_at is None:
            stopped = [w for w in part.workers
                       if w.code is None and self._has_guard_here(w) and processes.is_stopped(w.guard)]
            for worker in stopped:
                self._lose_stopped_guard(worker)
            if not stopped:
                self._fail(part, COMM, reason)

    def _lose_service(self, who, status, how):
        # Otherwise it ended because of a worker.
        if status < 0 or all(part.failed_at is None or part.lost_at for part in self._parts):
            self._end(status_of(status), f"{who} {how}; ending the other {self._others()}")

    # -- output --------------------------------------------------------------------------------------------------------

    def _say(self, text):
        self._display.clear()
        self._say_line(text)
        self._display.redraw()

    def _tag(self, worker):
        return output.tag(worker.number, worker.host if self._names_hosts else "")

    def _forward(self, prefix, descriptor, text):
        self._put(descriptor, output.tagged(prefix, text))

    def _put(self, descriptor, data):
        self._display.clear()
        try:
            output.write_all(descriptor, data)
        except BrokenPipeError:
            self._end(128 + signal.SIGPIPE, "")
        except output.OutputError as error:
            self._end(IO, f"{error}; ending {self._others()}")
        self._display.redraw()

    def _log(self, worker, is_out, data):
        self._run.output(worker.number, is_out, data)
        if self._logs is None:
            return
        try:
            self._logs.write(worker.number, is_out, data)
        except output.OutputError as error:
            self._logs = None
            self._end(IO, f"{error}; ending {self._others()}")

    def _show_starters(self):
        for part in self._parts:
            self._forward(f"[{part.name}] ".encode(), 2, part.text())

    # -- the end -------------------------------------------------------------------------------------------------------

    def _others(self):
        return counted(sum(worker.code is None for worker in self._workers), "worker")

    def _all(self):
        return counted(len(self._workers), "worker")

    def _end(self, code, text):
        if self._ended_at is not None:
            return
        self._ended_at, self._code = time.monotonic(), code
        if text:
            self._say(text)
        self._links.signal(signal.SIGTERM)

    def _fail(self, part, code, text, ends="ending the other"):
        """Ends the job, or continues without this part if another one is left. After an error in the command line or
        cluster it ends the job, because all parts have the same error."""
        if code in TOLD_WRONG or all(other is part or other.lost_at is not None for other in self._parts):
            left = sum(w.code is None for w in self._workers)
            self._end(code, text + (f"; {ends} {self._others()}" if left else ""))
            return
        part.lost_at = time.monotonic()
        part.loss = text
        if self._reporter is not None and self._reporter.part is part:
            self._display.close()
            self._reporter = None
        self._say(f"{text}; the job continues without pipeline {part.number}")
        self._services.tell_loss(part)
        self._links.signal(signal.SIGTERM, part.workers)

    def _blame(self, part, now):
        """Fails a part, with the cause that failed first."""
        if self._services.in_doubt(now):
            return
        # If all workers failed because of another process, it may be a service, whose end is noticed a moment later.
        failure = part.failure(now, self._statuses, self._services.runs)
        if failure:
            self._show_last_words(part)
            self._fail(part, *failure)

    def _show_last_words(self, part):
        """Prints the last words of a part, except lines that another part has already ended with."""
        for worker, text in part.last_words():
            if not last_words.is_traceback(text):
                if text in self._last_lines:
                    continue
                self._last_lines.add(text)
            self._forward(self._tag(worker), 2, text)

    def _tick(self, now):
        if self._ended_at is None:
            self._services.check(self._statuses, now)
            self._check_hangs(now)
        self._check_stopped(now)
        for part in self._parts:
            part.note_starter(self._statuses)
            if part.failed_at is not None and part.lost_at is None and self._ended_at is None:
                self._blame(part, now)
            if part.lost_at is not None or self._ended_at is not None:
                self._show_last_words(part)
        if self._ended_at is None:
            self._check_end(now)
        self._press(now)
        self._links.check(now)
        self._run.status(self._workers, self._slow)
        if self._metrics is not None:
            self._metrics.check(now)

    def _check_end(self, now):
        living = [part for part in self._parts if part.lost_at is None]
        if all(worker.code == 0 for part in living for worker in part.workers):
            self._ended_at, self._code = now, 0
            for part in self._parts:
                if part.lost_at is not None:
                    self._say(f"finished without pipeline {part.number}: {part.loss}")
            if vain := self._services.unused():
                self._say(vain)
            return
        for part in living:
            if part.ended(self._statuses) and not part.failed_at and not self._links.of(part):
                if failure := part.without_starter(self._statuses):
                    self._show_starters()
                    self._fail(part, *failure)
        if self._ended_at is None and now - self._started > self._timeout_s:
            missing = [str(w.number) for part in living for w in part.workers if not w.started]
            if missing:
                self._show_starters()
                self._end(TIMEOUT, f"workers {', '.join(missing)} did not start in {self._timeout_s:g} s (HETU_TIMEOUT)")

    def _press(self, now):
        """Ends processes that don't end by themselves: the starter, then everything of a lost part, or everything on this
        host."""
        for part in self._parts:
            since = self._ended_at if part.lost_at is None else part.lost_at
            if since is not None:
                part.press(since, now, self._statuses)
            if part.lost_at is not None and now - part.lost_at > FORCE_ALL_S:
                part.kill(self._statuses)
                for link in self._links.of(part):
                    self._links.drop(link)
        patience_s = FORCE_LOST_S if all(part.waits_in_vain() for part in self._parts) else FORCE_ALL_S
        if self._ended_at is not None and not self._forced and now - self._ended_at > patience_s:
            self._forced = True
            if any(part.process.pid not in self._statuses for part in self._parts):
                processes.kill_descendants(self._statuses)

