"""heturun: starts a command as the workers of a job, on this host or on the hosts of a cluster file."""
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys

from hetu import drill, progress
from hetu.launch import (
    folders,
    limits,
    network,
    output,
    pipelines,
    precheck,
    remote,
    run_folder,
    slow,
    slurm,
    starters,
    supervise,
)
from hetu.launch.environment import EXPORTED, worker_environment
from hetu.launch.keepers import Way
from hetu.launch.options import HELP, Options, UsageError
from hetu.launch.services import Servers

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder of the package hetu


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


def run_pre_command(options, nodes, local, say):
    """Runs --pre-command, if it is given, on the hosts of workers and servers. Returns its exit status."""
    if not options.pre_command:
        return 0
    from hetu.launch import pre_command  # most jobs don't need it

    hosts = ["localhost"] if local else [n["host"] for n in nodes if n["workers"] or n["servers"]]
    return pre_command.run(options.pre_command, hosts, options.key, say)


def run(options, say):
    nodes, warnings = read_nodes(options)
    for line in warnings:
        say(f"warning: {line}")
    from hetu import _hetu
    settings = _hetu.env()
    used = [n for n in nodes if n["workers"]]
    local = len(used) == 1 and network.is_this_host(used[0]["host"])
    mpirun = starters.choose(os.environ, local)
    if local:
        used = [dict(used[0], host="localhost")]
        if not shutil.which(options.command[0]):
            say(f"cannot start '{options.command[0]}': not found, or not executable")
            return 127
    environment = worker_environment(os.environ, used, options.command, settings["threads"])
    places, own = place_servers(nodes, local)
    interface, addresses = None, []
    if not local or any(places):
        interface, addresses = join_hosts(options, nodes, mpirun and mpirun.daemon(), environment.get("PYTHONPATH", ""), say)
    way = Way(own, options.key, interface, {n: value for n, value in environment.items() if EXPORTED.match(n)})
    servers = Servers(places, way, options.restart, options.server_log, bool(options.servers))
    workers = sum(n["workers"] for n in used)
    parts = split_workers(options, used, workers)
    if precheck.applies(options.command, len(parts) > 1):
        counted = {**environment, "HETU_PIPELINES": str(len(parts))}
        status = precheck.run(options.command, counted, workers, settings["timeout_s"], say)
        if status:
            return status
    if status := run_pre_command(options, nodes, local, say):
        return status
    with contextlib.suppress(BrokenPipeError):
        output.write_all(2, cluster_block(nodes).encode() + b"\n")
    folder = run_folder.open_for(options, say)
    say = told_to(folder, say)
    here = sum(n["workers"] for n in used if network.is_this_host(n["host"]))
    limits.allow_files(here)
    shared = limits.shared_folder(folders.short_place(), here) if local and mpirun else None
    job = supervise.Job(workers, [] if local else addresses, settings["timeout_s"],
                        progress.Display(output.StandardError()), say, len(parts), servers, options.hang_limit_s or 0.0,
                        slow_limit(options, used))
    try:
        folder_of_mpirun = shared and job.make_directory(shared)
        starts = starters.Starts(options, job, mpirun, interface, local, folder_of_mpirun, workers, len(parts))
        commands = [starts.of(number, part, environment) for number, part in enumerate(parts)]
        if options.verbose:
            for start in commands:
                say(" ".join(start.arguments))
        raw = options.output == "raw" if options.output else output.writes_alone(options.command, workers)
        if options.metrics:
            job.answer(options.metrics)
        folder.begin(job.name, options.command, nodes)
        return job.run(commands, raw, precheck.saves(options.command), len(used), options.verbose, options.log_dir, folder)
    finally:
        job.close()
        folder.leave()


def slow_limit(options, used):
    """Returns --slow-limit or its default. Workers that share a core slow each other down, so they aren't judged."""
    from hetu import _hetu

    shares = max(n["workers"] for n in used) > _hetu.machine_cores()
    return (0.0 if shares else slow.LIMIT) if options.slow_limit is None else options.slow_limit


def told_to(folder, say):
    """Returns a function that prints a line of heturun, and appends it to the log of the job."""
    def both(text):
        say(text)
        folder.line(text)
    return both


def run_elastic(options, faults, say):
    """Runs a job with --elastic, whose rounds write into its run folder. `faults`: those of HETU_FAULT."""
    from hetu.launch import elastic, elastic_trainings  # most jobs don't need them

    machines = elastic.Machines(options.machines, options.workers, options.key, say)
    training = elastic_trainings.training_of(options.layout, options.command)
    folder = run_folder.open_for(options, say)
    folder.begin(secrets.token_hex(6), options.command, [], elastic=True, machines=options.machines,
                 key=options.key and os.path.abspath(options.key))
    job = elastic.Elastic(machines, options.of_rounds(), training, options.hang_limit_s, told_to(folder, say),
                          run_folder=folder.path, faults=faults)
    machines.say = job.say
    try:
        status = job.run()
        folder.end([], slow.Slow(0), status)
        return status
    finally:
        folder.leave()


def main(argv=None):
    """Runs heturun and returns its exit status."""
    def say(text):
        with contextlib.suppress(BrokenPipeError):
            output.write_all(2, f"heturun: {text}\n".encode(errors="backslashreplace"))
    closed = output.open_closed()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # SIGINT is handled below; SIGUSR1 by the loop
        argv = sys.argv[1:] if argv is None else argv
        if argv and argv[0] in ("ps", "logs", "stop", "watch"):
            from hetu.launch import jobs

            return jobs.main(argv)
        if argv and argv[0] in ("add", "remove"):
            from hetu.launch import jobs, machine_list

            return jobs.main(argv, add=machine_list.add, remove=machine_list.remove)
        options = Options(argv)
        if options.help:
            output.write_all(1, HELP.encode())
            return 0
        if options.version:
            from hetu import _hetu
            output.write_all(1, f"heturun {_hetu.__version__}\n".encode())
            return 0
        if "standard output" in closed:
            say("standard output is closed: what workers write there is dropped")
        faults = drill.take(os.environ) if drill.VARIABLE in os.environ else []
        if options.elastic:
            return run_elastic(options, faults, say)
        if faults:
            raise UsageError(drill.NOT_ELASTIC)
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
