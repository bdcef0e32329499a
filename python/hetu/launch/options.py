"""The flags of heturun and its help."""
import getopt
import os
import re

from hetu.launch import metrics, slurm

HELP = """\
heturun [flags] command...
heturun ps | logs JOB | stop JOB        list jobs, show the output of a job, stop a job; see heturun ps --help
heturun watch [JOB]                     follow a job on a page in the browser
heturun add HOST [WORKERS] | remove HOST
                                        change the machines of an elastic job while it runs

Starts the command once for each worker, and prints the workers' output. It uses Open MPI, or sockets if all workers are
on this host and Open MPI isn't installed. The exit status is 0 if all workers succeed. Otherwise it is that of the first
worker that failed: 128 + N if signal N killed it, and 5 if Open MPI can't start in it. The workers' standard input is
empty. heturun's own messages go to standard error.

  -c, --config FILE     cluster file, which lists hosts and workers: a path, or one of the installed files
                        (config/NAME.yml)
  -w, --workers N       start N workers on this host; not with -c. Inside a Slurm allocation, without -c and -w, one
                        worker per task starts on the allocation's hosts
  -s, --servers N       number of parameter servers on this host, or on the hosts of the Slurm allocation; not with -c
                        (default 1). They start only if a worker needs them (hetpipe, --sync-method ps)
  -i, --identify KEY    ssh key for the other hosts
      --server-log DIR  folder for the logs from which a killed server restarts (default: the temporary folder). It
                        needs space for six times the bytes of all tables. The logs are deleted when the job ends
      --no-server-restart
                        keep no log; if a server is killed, end the job
      --on-failure HOW  if a worker dies: end (default) ends the job; shrink continues without the pipeline of that
                        worker, in jobs that average weights in groups (--preduce, --adpsgd)
      --pipelines N     number of pipelines, with --on-failure shrink (default: as given by --devices in the command)
      --elastic         continue with the remaining machines if a worker is lost, and with more or fewer machines if
                        --machines changes. Works with synchronous methods. The command has --checkpoint,
                        --devices pipe_<pipelines>_<stages>, --batch-size and --micro-batches, or it is a script with
                        hetu.torch.loop(), and heturun has --layout
      --layout PxSxM    with --elastic: pipelines, stages, and micro-batches of each pipeline, for a hetu.torch script
      --machines FILE   with --elastic: a file with a line HOST or HOST WORKERS for each host; it may change at any time
      --hang-limit S    end a training that makes no progress for S seconds plus ten times its slowest recent step, and
                        name the worker that the others wait for; 0: never (default: 120 with --elastic, else 0)
      --run-dir DIR     folder for the state and the logs of the job (default: a new one, runs/<date>-<time>-<script>;
                        HETU_RUNS=FOLDER replaces runs, and HETU_RUNS=none keeps none)
      --slow-limit F    report a worker that computes F times as long per step as the workers with the same stages, or
                        as in its own earlier steps; 0: never (default: 1.25, or 0 if a host has more workers than cores)
      --metrics-port P  serve the state of the job for Prometheus: GET /metrics at port P of 127.0.0.1, or at HOST:PORT
      --pre-command CMD run the shell command CMD once on each host, in the current folder, before the workers start. If it
                        fails, no worker starts, and the exit status is that of the command
      --log-dir DIR     folder for worker-N.out and worker-N.err, the output of each worker; later jobs append to them
      --output HOW      form of the workers' standard output: tagged puts the worker before each line ([1], or [1@w0] on
                        several hosts); raw changes nothing. Default: raw if only one worker writes (a job of one
                        worker, hetu rehearse), else tagged. Lines of standard error are always tagged
      --interface NAME  network interface between hosts (default: the one that all share)
  -v, --verbose         print the command that starts the workers, and the process id of each worker
      --version         print the version of Hetu
  -h, --help            print this text

heturun connects to other hosts by ssh, with the user and port of your ssh configuration. They must have the same Hetu
at the same path.

If heturun receives SIGUSR1, the workers save a checkpoint and exit with status 0. The first Ctrl-C has the same effect
if the training has a checkpoint folder. Otherwise, it ends all workers at once. So do a second Ctrl-C, SIGTERM, and the
death of a worker.

HETU_FAULT=worker=2,step=5,kind=kill makes a fault happen on purpose in a job with --elastic; docs/elastic.md has the rest.
"""


class UsageError(Exception):
    """A wrong command line. Reported in one line, with exit status 2."""


class Options:
    """The flags of heturun."""

    def __init__(self, argv, environ=None):
        self.allocation = None
        self.config, self.key, self.interface, self.verbose, self.help = None, None, None, False, False
        self.version = False
        self.workers, self.servers = None, None
        self.server_log, self.restart = "", True
        self.shrink, self.pipelines = False, None
        self.elastic, self.machines, self.layout = False, None, None
        self.hang_limit_s, self.slow_limit = None, None
        self.output = None
        self.log_dir = None
        self.run_dir, self.metrics = None, None
        self.pre_command = None
        try:
            flags, self.command = getopt.getopt(
                argv, "c:w:s:i:vh", ["config=", "workers=", "servers=", "identify=", "interface=", "on-failure=",
                                     "pipelines=", "output=", "server-log=", "no-server-restart", "elastic", "machines=",
                                     "layout=", "hang-limit=", "slow-limit=", "log-dir=", "run-dir=", "metrics-port=",
                                     "pre-command=", "verbose", "version", "help"])
        except getopt.GetoptError as error:
            import difflib  # imported late, because it is rarely needed

            near = difflib.get_close_matches(f"--{error.opt}", re.findall(r"--[a-z][a-z-]+", HELP), 1)
            hint = f"; did you mean {near[0]}?" if near and "not recognized" in error.msg else ";"
            raise UsageError(f"{error.msg}{hint} heturun --help lists the flags") from None
        for flag, value in flags:
            self._take(flag, value)
        if not self.help and not self.version:
            if not self.config and self.workers is None and not self.elastic:
                self.allocation = slurm.allocation(os.environ if environ is None else environ)
            self._check()

    def _take(self, flag, value):
        if flag in ("-c", "--config"):
            self.config = value
        elif flag in ("-w", "--workers"):
            self.workers = count(flag, value)
        elif flag in ("-s", "--servers"):
            self.servers = count(flag, value)
        elif flag == "--server-log":
            self.server_log = os.path.abspath(value)
        elif flag == "--no-server-restart":
            self.restart = False
        elif flag in ("-i", "--identify"):
            self.key = value
        elif flag == "--interface":
            self.interface = value
        elif flag == "--on-failure":
            self.shrink = one_of(flag, value, "end", "shrink") == "shrink"
        elif flag == "--elastic":
            self.elastic = True
        elif flag == "--machines":
            self.machines = os.path.abspath(value)
        elif flag == "--hang-limit":
            self.hang_limit_s = float(count(flag, value))
        elif flag == "--slow-limit":
            self.slow_limit = factor(flag, value)
        elif flag == "--layout":
            self.layout = value
        elif flag == "--log-dir":
            self.log_dir = os.path.abspath(value)
        elif flag == "--metrics-port":
            self.metrics = metrics.address_of(value)
        elif flag == "--pre-command":
            self.pre_command = value
        elif flag == "--run-dir":
            self.run_dir = os.path.abspath(value)
        elif flag == "--output":
            self.output = one_of(flag, value, "raw", "tagged")
        elif flag == "--pipelines":
            self.pipelines = count(flag, value)
        elif flag in ("-v", "--verbose"):
            self.verbose = True
        elif flag == "--version":
            self.version = True
        else:
            self.help = True

    def _check(self):
        if self.config and (self.workers is not None or self.servers is not None):
            raise UsageError("-w and -s can't be used with -c; the cluster file sets the numbers")
        if self.machines and not self.elastic:
            raise UsageError("--machines requires --elastic")
        if self.layout and not self.elastic:
            raise UsageError("--layout requires --elastic")
        if self.elastic:
            self._check_elastic()
        elif not self.config and not self.workers and (self.workers == 0 or self.allocation is None):
            raise UsageError("without -c, and outside a Slurm allocation, the number of local workers must be given and "
                             "above 0, e.g. heturun -w 4 …")
        if not self.command:
            raise UsageError("no command was given, e.g. heturun -w 4 python3 train.py")
        if self.pipelines is not None and not self.shrink:
            raise UsageError("--pipelines requires --on-failure shrink")
        if self.server_log and not self.restart:
            raise UsageError(f"--server-log {self.server_log}: with --no-server-restart there is no log; leave one out")
        if self.server_log and not (os.path.isdir(self.server_log) and os.access(self.server_log, os.W_OK | os.X_OK)):
            raise UsageError(f"--server-log {self.server_log}: it must be an existing, writable folder")
        if self.pre_command is not None and not self.pre_command.strip():
            raise UsageError("--pre-command is empty; give a shell command, such as --pre-command 'make data'")
        if ":" in self.server_log:
            raise UsageError(f"--server-log {self.server_log}: the path must have no colon")
        if self.log_dir and not (os.path.isdir(self.log_dir) and os.access(self.log_dir, os.W_OK | os.X_OK)):
            raise UsageError(f"--log-dir {self.log_dir}: it must be an existing, writable folder")
        if self.key and not os.access(self.key, os.R_OK):
            raise UsageError(f"-i {self.key}: no such file, or not readable; give the path of an ssh key")
        if self.key and re.search(r"\s", self.key):  # Open MPI splits its arguments for ssh at spaces
            raise UsageError(f"-i '{self.key}': the path must have no spaces")

    def _check_elastic(self):
        if self.pre_command is not None:
            raise UsageError("--pre-command can't be used with --elastic, whose hosts change; make it part of the command, "
                             "e.g. sh -c 'CMD && exec python3 train.py …'")
        if self.config or self.servers or self.shrink:
            raise UsageError("--elastic can't be used with -c, -s and --on-failure; --machines FILE names the hosts")
        if bool(self.machines) == bool(self.workers):
            raise UsageError("--elastic needs the machines: --machines FILE, or -w N for this host")
        if self.machines and not os.path.exists(self.machines):
            raise UsageError(f"--machines {self.machines}: no such file; write a line HOST or HOST WORKERS for each "
                             "machine, such as 'w0 4'")

    def of_rounds(self):
        """Returns the flags that hold for every round of an elastic job."""
        return [*(["-i", self.key] if self.key else []), *(["--interface", self.interface] if self.interface else []),
                *(["--output", self.output] if self.output else []), *(["-v"] if self.verbose else []),
                *(["--log-dir", self.log_dir] if self.log_dir else []),
                *(["--metrics-port", "{}:{}".format(*self.metrics)] if self.metrics else []),
                *([] if self.slow_limit is None else ["--slow-limit", f"{self.slow_limit:g}"])]


def count(flag, value):
    if not re.fullmatch(r"[0-9]{1,4}", value):
        raise UsageError(f"{flag} {value}: it must be a whole number from 0 to 9999")
    return int(value)


def factor(flag, value):
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", value) or 0 < float(value) <= 1:
        raise UsageError(f"{flag} {value}: it must be a number above 1, such as 1.25, or 0")
    return float(value)


def one_of(flag, value, *right):
    if value not in right:
        raise UsageError(f"{flag} {value}: it must be {' or '.join(right)}")
    return value
