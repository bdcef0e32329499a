"""A check of a training before its workers start. heturun runs the script once, which plans for all workers and ends when
the Executor is created."""
import os
import re
import signal
import subprocess

from hetu.launch import processes
from hetu.launch.part import TIMEOUT, ending, status_of
from hetu.launch.pipelines import option_of, script_of

USES_HETU = re.compile(r"^\s*(import|from) hetu\b", re.MULTILINE)


def applies(command, apart):
    """Returns true for a script of Hetu with a plan of the user's own, or with a memory limit, because errors in them
    depend on the model. Also returns true for a training by a method (--pipeline) whose pipelines start `apart`, because
    each would report the same error. Otherwise the workers check methods by name."""
    from hetu import schedule

    pipeline = option_of(command, "--pipeline") or ""
    own = schedule.is_file(pipeline) or schedule.is_function(pipeline)
    if not own and not (apart and pipeline) and option_of(command, "--memory-limit") is None:
        return False
    return uses_hetu(command)


def saves(command):
    """Returns true for a script of Hetu whose options name a folder for checkpoints. Used until the script reports it
    itself."""
    return option_of(command, "--checkpoint") is not None and uses_hetu(command)


def uses_hetu(command):
    """Returns true if the Python script that a command runs imports Hetu."""
    try:
        with open(script_of(command) or "", encoding="utf-8") as file:
            return bool(USES_HETU.search(file.read()))
    except (OSError, UnicodeDecodeError):
        return False


def run(command, environment, workers, timeout_s, say):
    """Runs the check. Returns its exit status, 0 if the job may start. Its messages go to standard error. It ends with this
    process, and after `timeout_s` at the latest."""
    me = os.getpid()
    process = subprocess.Popen(
        command, env={**environment, "HETU_CHECK": str(workers)}, stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: processes.die_with_parent(signal.SIGKILL, me))
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        say(f"the check of the command before its start took more than {timeout_s:g} s (HETU_TIMEOUT)")
        return TIMEOUT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        how = f"the check of the command {ending(code)}; " if code < 0 else ""
        say(f"{how}refused before any worker was started")
    return status_of(code)
