"""Varuna's launcher: `python3 -m hetu.varuna.run_varuna`, or `python3 -m varuna.run_varuna` with python/ of the source tree
on the Python path.

It starts a script on the machines of a list, and gives each process the arguments and the environment that Varuna gives.
When the list changes (morphing), the workers receive SIGUSR1, the script's handler saves and ends, and the job goes on with
a layout for the machines that are there. The samples of a micro-batch and the micro-batches of a step stay the same, so the
batch stays exact, and gradients are added in an order that doesn't depend on the layout. The rounds are those of `heturun
--elastic` (hetu.launch.elastic).

Source: Athlur et al. 2022 (Varuna), and the README of its repository. Differences: no port is opened, because heturun
carries the signals, and the checkpoint to continue from is the newest complete one in the store that the script has used."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hetu import drill, files
from hetu.compat.varuna import checkpoint, node
from hetu.compat.varuna.auto_config import AutoConfig
from hetu.launch import elastic, network, processes
from hetu.launch.elastic_layout import Layout, best_layout

HERE = Path(__file__).resolve().parent
RECORD = "checkpoints.json"  # in the folder of the logs: (store, step) of the last checkpoints, for --resume
KEPT = 20  # entries of RECORD


def say(text: str) -> None:
    """Prints a line of the launcher."""
    print(f"run_varuna: {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="run_varuna", allow_abbrev=False,
        description="Starts a script for Varuna on the machines of a list, and goes on when the list changes.",
        epilog="The script receives --rank, --local_rank, --chunk_size, --stage_to_rank_map and --batch-size (of its "
               "replica), and after a change or with --resume --resume_step.")
    add = found.add_argument
    add("--machine_list", default="available_machines.out", metavar="FILE",
        help="an address per line; 127.0.0.1 is this machine. It may change at any time (default %(default)s)")
    add("--gpus_per_node", type=int, default=4, metavar="N", help="workers of each machine (default %(default)s)")
    add("--batch_size", "--batch-size", type=int, required=True, metavar="B", help="samples of a step, of all replicas")
    add("--nstages", type=int, metavar="P", help="stages of a pipeline (default: chosen from --profile_folder)")
    add("--chunk_size", type=int, metavar="M", help="samples of a micro-batch (default: chosen from --profile_folder)")
    add("--profile_folder", default="profiles", metavar="DIR", help="profiles of hetu.varuna.Profiler, for the choice of "
        "stages and micro-batch size (default %(default)s)")
    add("--code_dir", default=".", metavar="DIR", help="working folder of the script, on all machines (default: this one)")
    add("--env_file", metavar="FILE", help="variables for the script, a line NAME=VALUE each (default: varuna.env, if it is "
        "there)")
    add("--log_dir", default="ssh_logs", metavar="DIR", help="folder for the output of each worker (default %(default)s)")
    add("--resume", action="store_true", help="continue from the newest checkpoint of the last job in this folder")
    add("--no_morphing", action="store_true", help="end when a worker is lost, and don't watch the list")
    add("--manager_ip", metavar="IP", help="address of the manager, which runs here: this machine's")
    add("command", nargs=argparse.REMAINDER, metavar="script.py arguments", help="the script and its arguments")
    return found


class ScriptTraining:
    """A script for Varuna as the training of an elastic job (hetu.launch.elastic_trainings has the other kinds)."""

    def __init__(self, given: argparse.Namespace, stages: int, chunk: int, saves: list[tuple[str, int]]) -> None:
        self.given, self.chunk, self.saves = given, chunk, saves
        self.first = Layout(1, stages, given.batch_size // chunk, 0)
        self.continued: tuple[str, int] | None = None  # the checkpoint from which the last round has continued

    def command(self, layout: Layout, is_first: bool) -> list[str]:
        """Returns the workers' command for a round."""
        given, found = self.given, self.newest_checkpoint()
        step = found[1] if found else None
        if found is None and not is_first:
            say("no checkpoint was saved, so the script begins anew; it needs a handler of SIGUSR1 that saves and exits")
        elif found:
            again = " again, because no checkpoint was saved since" if found == self.continued else ""
            say(f"continues from step {step} in {found[0]}{again}")
        self.continued = found
        more = {"stages": layout.stages, "replicas": layout.pipelines, "chunk_size": self.chunk,
                "batch_size": given.batch_size, "resume_step": step, "env_file": given.env_file}
        return [sys.executable, "-m", "hetu.compat.varuna.node",
                *(word for name, value in more.items() if value is not None for word in (f"--{name}", str(value))),
                *([] if given.no_morphing else ["--tree"]), *given.command]

    def environment(self, _layout: Layout, _used: dict[str, int]) -> dict[str, str]:
        """Returns variables of a round. The number of threads is Varuna's, and the same in all rounds."""
        return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}

    def newest_checkpoint(self) -> tuple[str, int] | None:
        """Returns (store, step) of the newest complete checkpoint of this job, or None."""
        return next(((store, step) for store, step in reversed(self.saves)
                     if checkpoint.is_complete(checkpoint.folder_of(store, step))), None)

    def saved_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, or None."""
        found = self.newest_checkpoint()
        return found[1] if found else None

    def continuation(self) -> str:
        """Describes where the next round begins; command() says more."""
        return "continues from its newest checkpoint" if self.newest_checkpoint() else "begins again"

    def fault(self, notes: Any, _status: int) -> str:
        """Takes the checkpoints from a round's notes. Returns the reason why the job ends after it, or ""."""
        if notes.saves:
            self.saves = [*self.saves, *notes.saves][-KEPT:]
            files.write_text(Path(self.given.log_dir, RECORD), json.dumps(self.saves))
        return ""


def check(given: argparse.Namespace) -> None:
    """Throws ValueError for a wrong command line. Changes to the folder of the script."""
    given.command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not given.command:
        raise ValueError("no script was given, e.g. run_varuna --machine_list FILE --batch-size 64 --nstages 2 --chunk_size "
                         "4 train.py")
    for name in ("gpus_per_node", "batch_size", "nstages", "chunk_size"):
        if (value := getattr(given, name)) is not None and value < 1:
            raise ValueError(f"--{name} {value}: it must be at least 1")
    if given.manager_ip and not network.is_this_host(given.manager_ip):
        raise ValueError(f"--manager_ip {given.manager_ip}: the manager runs on this machine; start run_varuna there, or "
                         f"leave --manager_ip out")
    given.machine_list = os.path.abspath(given.machine_list)
    if not os.path.exists(given.machine_list):
        raise ValueError(f"--machine_list {given.machine_list}: no such file; write an address per line, such as 127.0.0.1")
    if not os.path.isdir(given.code_dir):
        raise ValueError(f"--code_dir {given.code_dir}: no such folder")
    os.chdir(given.code_dir)
    if not os.path.isfile(given.command[0]):
        raise ValueError(f"{given.command[0]}: no such script in {os.getcwd()}")
    if given.env_file is None and os.path.exists("varuna.env"):
        given.env_file = "varuna.env"
    if given.env_file:
        node.read_variables(given.env_file)
    given.log_dir = os.path.abspath(given.log_dir)
    os.makedirs(given.log_dir, exist_ok=True)


def sizes(given: argparse.Namespace, workers: int) -> tuple[int, int]:
    """Returns stages and samples of a micro-batch: as given, else by AutoConfig. Throws ValueError if they don't keep the
    batch."""
    stages, chunk = given.nstages, given.chunk_size
    if stages is None or chunk is None:
        if stages is not None or chunk is not None:
            raise ValueError("give both --nstages and --chunk_size, or none of them")
        found = AutoConfig(workers, given.gpus_per_node, given.batch_size, given.profile_folder, verbose=False).get_min()
        stages, chunk = found.stages, found.micro_batch_size
        say(f"chooses --nstages {stages} --chunk_size {chunk}: predicted {found.seconds:.3g} s per step")
    if given.batch_size % chunk:
        below = given.batch_size // chunk * chunk
        raise ValueError(f"--batch-size {given.batch_size} isn't a multiple of --chunk_size {chunk}, and every layout keeps "
                         f"the batch: choose {f'{below} or ' if below else ''}{below + chunk}, or another chunk size")
    return stages, chunk


def earlier_saves(given: argparse.Namespace) -> list[tuple[str, int]]:
    """Returns (store, step) of the checkpoints of the last job, for --resume. Throws ValueError if none is known."""
    record = Path(given.log_dir, RECORD)
    if not given.resume:
        return []
    if not record.is_file():
        raise ValueError(f"--resume: no job with the log folder {given.log_dir} has saved a checkpoint; leave --resume out")
    return [(str(store), int(step)) for store, step in files.read_json(record)]


def heturun() -> str:
    """Returns the path of heturun: that of the source tree, or of the installation."""
    own = HERE.parents[2] / "heturun"
    found = str(own) if own.is_file() else shutil.which("heturun")
    if not found:
        raise ValueError("heturun was not found beside the package, and not on PATH")
    return found


def run_once(training: ScriptTraining, machines: elastic.Machines) -> int:
    """Runs the script on the machines of the list, without morphing. Returns the exit status."""
    listed = machines.listed()
    workers = sum(listed.values())
    layout = best_layout(training.first, workers)
    if layout.stages != training.first.stages:
        raise ValueError(f"--nstages {training.first.stages} needs as many workers, and the list has {workers}")
    used = elastic.use(listed, layout.workers)
    if layout.workers < workers:
        say(f"{workers - layout.workers} of {workers} workers are idle: {layout}")
    with tempfile.TemporaryDirectory(prefix="hetu-varuna-") as folder:
        words = [sys.executable, heturun(), *elastic.place(used, folder), "--log-dir", training.given.log_dir,
                 *training.command(layout, True)]
        return _supervised(words, {**os.environ, **training.environment(layout, used)})


def _supervised(words: list[str], environment: dict[str, str]) -> int:
    """Runs heturun, and passes on the signals that end a job or make it save. Returns the exit status."""
    me, held, process = os.getpid(), list[int](), None

    def take(number: int, _frame: Any) -> None:
        if process is None:
            held.append(number)
        else:
            process.send_signal(number)

    for number in elastic.SIGNALS:
        signal.signal(number, take)
    # In a session of its own, so that Ctrl-C of a terminal arrives once.
    process = subprocess.Popen(words, env=environment, start_new_session=True,
                               preexec_fn=lambda: processes.die_with_parent(signal.SIGTERM, me))
    for early in held:
        process.send_signal(early)
    code = process.wait()
    return code if code >= 0 else 128 - code


def main(argv: list[str] | None = None) -> int:
    """Runs the launcher, and returns its exit status."""
    given = parser().parse_args(argv)
    try:
        check(given)
        faults = drill.take(os.environ)
        machines = elastic.Machines(given.machine_list, None, None, say, given.gpus_per_node)
        stages, chunk = sizes(given, sum(machines.listed().values()))
        training = ScriptTraining(given, stages, chunk, earlier_saves(given))
        if given.no_morphing:
            if faults:
                raise drill.FaultError(drill.NOT_ELASTIC)
            return run_once(training, machines)
        job = elastic.Elastic(machines, ["--log-dir", given.log_dir], training, None, say, heturun(), faults=faults)
        return int(job.run())
    except (ValueError, OSError) as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
