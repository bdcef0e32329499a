"""heturun: starts a command as the workers of a job, on this host or on the hosts of a cluster file."""
import contextlib
import getopt
import os
import re
import shutil
import signal
import socket
import sys

from hetu import progress
from hetu.launch import folders, limits, network, output, pipelines, precheck, remote, slurm, supervise
from hetu.launch.environment import EXPORTED, worker_environment
from hetu.launch.keepers import Way
from hetu.launch.mpirun import Mpirun, closed_ports
from hetu.launch.services import Servers

HELP = """\
heturun [flags] command...

Starts the command once per worker under Open MPI, and passes on the workers' output. The exit status is 0 if all
workers succeed, else the status of the first worker that fails (128 + signal if it is killed, 5 if Open MPI can't start
in it). Standard input of workers is empty. heturun's own messages go to standard error.

  -c, --config FILE     cluster file; a path, or one of the installed files (config/NAME.yml)
  -w, --workers N       N workers on this host; only without -c. Inside a Slurm allocation, the default without -c
                        and -w is one worker per task, on the allocation's hosts
  -s, --servers N       N parameter servers on this host, or on the hosts of the Slurm allocation; only without -c
                        (default 1). Their processes start when a worker needs them (hetpipe, --sync-method ps)
  -i, --identify KEY    ssh key for the other hosts
      --server-log DIR  folder for the logs from which a killed server restarts (default: the temporary folder). It
                        needs space for six times the bytes of all tables. The logs are deleted when the job ends
      --no-server-restart
                        keep no log, and end the job when a server is killed
      --on-failure HOW  end (default): the death of any worker ends the job; shrink: a job that averages weights
                        in groups (--preduce, --adpsgd) continues without the pipeline of that worker
      --pipelines N     number of pipelines, with --on-failure shrink (default: as given by --devices in the command)
      --elastic         go on with the machines that are left when a worker is lost, and with more or fewer machines
                        when --machines changes. For trainings by a method with a flush, with --checkpoint,
                        --devices pipe_<pipelines>_<stages>, --batch-size and --micro-batches in the command, or for
                        scripts with hetu.torch.loop(), with --layout
      --layout PxSxM    with --elastic: pipelines, stages, and micro-batches of each pipeline, for a hetu.torch script
      --machines FILE   with --elastic: the hosts, a line HOST or HOST WORKERS each; it may change at any time
      --hang-limit S    ends a training that makes no progress for S seconds plus ten times the slowest of its last
                        steps, and names the worker that the others wait for; 0: never (default: 120 with --elastic,
                        else 0)
      --log-dir DIR     folder for worker-N.out and worker-N.err, the output of each worker; later jobs append to them
      --output HOW      standard output of workers: tagged, with the worker before every line ([1], or [1@w0] on several
                        hosts, for worker@host); raw, unchanged. Default: raw if only one worker writes (a job of one
                        worker, hetu rehearse), else tagged. Lines of standard error are always tagged
      --interface NAME  network interface between hosts (default: the one that all share)
  -v, --verbose         show mpirun's command line, and the process id of each worker
      --version         the version of Hetu
  -h, --help            this text

heturun connects to other hosts by ssh, with the user and port of your ssh configuration. They must have the same Hetu
at the same path. heturun passes SIGUSR1 to each worker as soon as the worker handles it; workers then save a checkpoint
and exit 0. The first Ctrl-C does the same if the workers train with a checkpoint folder. Otherwise, the first Ctrl-C
ends all workers, and so do a second Ctrl-C, SIGTERM and the death of any worker.
"""
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder of the package hetu

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
        self.hang_limit_s = None
        self.output = None
        self.log_dir = None
        try:
            flags, self.command = getopt.getopt(
                argv, "c:w:s:i:vh", ["config=", "workers=", "servers=", "identify=", "interface=", "on-failure=",
                                     "pipelines=", "output=", "server-log=", "no-server-restart", "elastic", "machines=",
                                     "layout=", "hang-limit=", "log-dir=", "verbose", "version", "help"])
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
        elif flag == "--layout":
            self.layout = value
        elif flag == "--log-dir":
            self.log_dir = os.path.abspath(value)
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
        if ":" in self.server_log:
            raise UsageError(f"--server-log {self.server_log}: the path must have no colon")
        if self.log_dir and not (os.path.isdir(self.log_dir) and os.access(self.log_dir, os.W_OK | os.X_OK)):
            raise UsageError(f"--log-dir {self.log_dir}: it must be an existing, writable folder")
        if self.key and not os.access(self.key, os.R_OK):
            raise UsageError(f"-i {self.key}: no such file, or not readable; give the path of an ssh key")
        if self.key and re.search(r"\s", self.key):  # Open MPI splits its arguments for ssh at spaces
            raise UsageError(f"-i '{self.key}': the path must have no spaces")

    def _check_elastic(self):
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
                *(["--log-dir", self.log_dir] if self.log_dir else [])]


def count(flag, value):
    if not re.fullmatch(r"[0-9]{1,4}", value):
        raise UsageError(f"{flag} {value}: it must be a whole number from 0 to 9999")
    return int(value)


def one_of(flag, value, *right):
    if value not in right:
        raise UsageError(f"{flag} {value}: it must be {' or '.join(right)}")
    return value


def find_config(path):
    """Returns the path of a cluster file: as given, or one of the shipped files."""
    if os.path.exists(path):
        return path
    name = os.path.basename(path)
    if path in (name, os.path.join("config", name)):
        # The folders of the source tree, and of an installation.
        for place in (os.path.join(PACKAGE, "..", "..", "config"), os.path.join(PACKAGE, "config")):
            for candidate in (name, name + ".yml"):
                if os.path.isfile(os.path.join(place, candidate)):
                    return os.path.normpath(os.path.join(place, candidate))
    return path  # the reader reports the error


def read_nodes(options):
    """Returns the cluster as a list of dicts with host, servers, workers and chief, and warnings as a list of lines."""
    if options.allocation is not None:
        return slurm.with_servers(options.allocation, options.servers or 0), []
    if not options.config:
        node = {"host": "localhost", "servers": options.servers or 0, "workers": options.workers, "chief": True}
        return [node], []
    from hetu import _hetu
    return _hetu.read_cluster(find_config(options.config))


def cluster_block(nodes):
    """Returns the cluster in the form of SD-PIPE's `Cluster: {` block."""
    def part(key):
        counts = {node["host"]: node[key] for node in nodes if node[key]}
        return f"({sum(counts.values())}): {counts}"
    chief = next(node["host"] for node in nodes if node["chief"])
    return f"Cluster: {{\n  Chief: {chief},\n  Servers{part('servers')},\n  Workers{part('workers')},\n}}"


def choose_interface(hosts, wanted, say):
    """Returns (mpirun's interface or network, addresses of this host) for a job on several hosts."""
    own = network.interfaces()
    if wanted:
        if wanted not in own:
            raise UsageError(f"--interface {wanted}: this host has {', '.join(sorted(own))}")
        say(f"interface {wanted}, address {own[wanted]}")
        return wanted, [own[wanted]]
    shared, addresses = network.shared_network(hosts, own)
    mine = network.own_addresses(shared)
    names = ", ".join(name for name, address in own.items() if address in mine)
    known = ", ".join(f"{host} {address or 'by ssh alone'}" for host, address in zip(hosts, addresses, strict=True))
    say(f"interface {names}, network {shared or 'unrestricted (no common prefix of /16 or longer)'}; {known}; "
        "--interface overrides")
    return shared, mine


def place_servers(nodes, local):
    """Returns the host of each server in the form of Servers.hosts, and the names that refer to this host. If `local` is
    true, all workers are here, and heturun runs the servers of this host itself."""
    own = {n["host"] for n in nodes if network.is_this_host(n["host"])}
    hosts = [host for n in nodes for host in [n["host"]] * n["servers"]]
    if not hosts:
        hosts = [socket.gethostname()]
        own.add(hosts[0])
    return tuple("" if local and host in own else host for host in hosts), frozenset(own)


def join_hosts(options, nodes, daemon, python_path, say):
    """Returns the network interface between the hosts of a job, and this host's addresses there. Checks that each host can
    start `daemon` and finds the modules of `python_path`."""
    hosts = [n["host"] for n in nodes if n["workers"] or n["servers"]]
    interface, addresses = choose_interface(hosts, options.interface, say)
    others = [host for host in hosts if not network.is_this_host(host)]
    bare = {n["host"] for n in nodes if not n["workers"]}
    for line in remote.check(hosts, others, options.key, daemon, python_path, bare):
        say(f"warning: {line}")
    return interface, addresses


def split_workers(options, used, workers):
    """Returns the hosts of each part of a job: of each pipeline, if the job continues without one that dies."""
    if not options.shrink:
        return [used]
    count_of_pipelines = options.pipelines or pipelines.count_of(options.command, used, os.environ)
    pipelines.check(count_of_pipelines, workers)
    return pipelines.split(used, count_of_pipelines)


def guard_command(job, command):
    """Returns the command of a worker's guard, which starts the worker by `command`."""
    return [sys.executable, "-I", "-S", os.path.join(PACKAGE, "launch", "run_guard.py"), job.address,
            ":".join(job.directories), *command]


def run(options, say):
    nodes, warnings = read_nodes(options)
    for line in warnings:
        say(f"warning: {line}")
    from hetu import _hetu
    settings = _hetu.env()
    mpirun = Mpirun()
    used = [n for n in nodes if n["workers"]]
    local = len(used) == 1 and network.is_this_host(used[0]["host"])
    if local:
        used = [dict(used[0], host="localhost")]
        if not shutil.which(options.command[0]):
            say(f"cannot start '{options.command[0]}': not found, or not executable")
            return 127
    environment = worker_environment(os.environ, used, options.command, settings["threads"])
    environment |= {"HETU_HANG_LIMIT": f"{options.hang_limit_s:g}"} if options.hang_limit_s else {}
    places, own = place_servers(nodes, local)
    interface, addresses = None, []
    if not local or any(places):
        interface, addresses = join_hosts(options, nodes, mpirun.daemon(), environment.get("PYTHONPATH", ""), say)
    way = Way(own, options.key, interface, {n: value for n, value in environment.items() if EXPORTED.match(n)})
    servers = Servers(places, way, options.restart, options.server_log, bool(options.servers))
    workers = sum(n["workers"] for n in used)
    parts = split_workers(options, used, workers)
    if precheck.applies(options.command, len(parts) > 1):
        counted = {**environment, "HETU_PIPELINES": str(len(parts))}
        status = precheck.run(options.command, counted, workers, settings["timeout_s"], say)
        if status:
            return status
    with contextlib.suppress(BrokenPipeError):
        output.write_all(2, cluster_block(nodes).encode() + b"\n")
    here = sum(n["workers"] for n in used if network.is_this_host(n["host"]))
    limits.allow_files(here)
    shared = limits.shared_folder(folders.short_place(), here) if local else None
    job = supervise.Job(workers, [] if local else addresses, settings["timeout_s"],
                        progress.Display(output.StandardError()), say, len(parts), servers, options.hang_limit_s or 0.0)
    try:
        shm = job.make_directory(shared) if local else None
        commands = []
        for part in parts:
            argv = mpirun.start(part)
            more = dict(environment)
            if options.shrink:
                more.update(HETU_FIRST_WORKER=str(len(commands) * workers // len(parts)), HETU_PIPELINES=str(len(parts)))
            if local:  # a folder for each mpirun: two that create the same folder at once fail
                place = os.path.join(os.path.dirname(job.address[len("unix:"):]), str(len(commands)))
                os.mkdir(place)
                argv += mpirun.local(place, shm)
                more.update(closed_ports(more, place))
            else:
                ours = {"HETU_JOB", "HETU_CONTROL_TOKEN", "HETU_PATH", "HETU_COORDINATOR", "HETU_SERVERS"}
                names = sorted(n for n in {*more, *ours} if EXPORTED.match(n))
                argv += mpirun.remote(options.key, interface, names, len(commands))
            argv += guard_command(job, options.command)
            commands.append((argv, more))
            if options.verbose:
                say(" ".join(argv))
        raw = options.output == "raw" if options.output else output.writes_alone(options.command, workers)
        return job.run(commands, raw, precheck.saves(options.command), len(used), options.verbose, options.log_dir)
    finally:
        job.close()


def main(argv=None):
    """Runs heturun and returns its exit status."""
    def say(text):
        with contextlib.suppress(BrokenPipeError):
            output.write_all(2, f"heturun: {text}\n".encode(errors="backslashreplace"))
    closed = output.open_closed()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # SIGINT is handled below; SIGUSR1 by the loop
        options = Options(sys.argv[1:] if argv is None else argv)
        if options.help:
            output.write_all(1, HELP.encode())
            return 0
        if options.version:
            from hetu import _hetu
            output.write_all(1, f"heturun {_hetu.__version__}\n".encode())
            return 0
        if "standard output" in closed:
            say("standard output is closed: what workers write there is dropped")
        if options.elastic:
            from hetu.launch import elastic, elastic_trainings  # most jobs don't need them

            machines = elastic.Machines(options.machines, options.workers, options.key, say)
            training = elastic_trainings.training_of(options.layout, options.command)
            return elastic.Elastic(machines, options.of_rounds(), training, options.hang_limit_s, say).run()
        return run(options, say)
    except BrokenPipeError:  # the reader of --help has closed the pipe
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:  # once workers run, the loop handles it
        say("SIGINT: ended before any worker was started")
        return 128 + signal.SIGINT
    except (UsageError, ValueError) as error:
        say(str(error))
        return 2
    except OSError as error:
        say(str(error))
        return 4
