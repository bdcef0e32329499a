"""A look at a training before its workers start: heturun runs the script once by itself, which plans for all of them, and
ends where the Executor is made."""
import os
import re
import signal
import subprocess

from hetu.launch import processes
from hetu.launch.part import TIMEOUT, ending, status_of
from hetu.launch.pipelines import option_of, script_of

USES_HETU = re.compile(r"^\s*(import|from) hetu\b", re.MULTILINE)


def applies(command, apart):
    """True for a script of Hetu with a plan of the user's own, or with a limit of memory: both may be wrong in ways that the
    model alone shows. Also for a training by a method (--pipeline) whose pipelines start `apart`: each would say by itself
    what all do wrong. Else methods by name are refused by the workers."""
    from hetu import schedule

    pipeline = option_of(command, "--pipeline") or ""
    own = schedule.is_file(pipeline) or schedule.is_function(pipeline)
    if not own and not (apart and pipeline) and option_of(command, "--memory-limit") is None:
        return False
    return uses_hetu(command)


def saves(command):
    """True for a script of Hetu whose options name a folder for checkpoints: what is known before it has said anything."""
    return option_of(command, "--checkpoint") is not None and uses_hetu(command)


def uses_hetu(command):
    """Whether the Python script that a command runs imports Hetu."""
    try:
        with open(script_of(command) or "", encoding="utf-8") as file:
            return bool(USES_HETU.search(file.read()))
    except (OSError, UnicodeDecodeError):
        return False


def run(command, environment, workers, timeout_s, say):
    """The exit status of the check, 0 if the job may start. What it has to say stands on standard error; it ends with this
    process, and after `timeout_s` in any case."""
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
