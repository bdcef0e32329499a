"""A look at a training before its workers start: heturun runs the script once by itself, which plans for all of them, and
ends where the Executor is made."""
import re
import subprocess

from hetu.pipelines import option_of

# What a user made or bounds: it may be wrong in ways that the model alone shows. Methods by name are refused by the workers.
OWN_PLAN = re.compile(r".*\.(csv|json)|[\w.]+:\w+")
USES_HETU = re.compile(r"^\s*(import|from) hetu\b", re.MULTILINE)


def applies(command):
    """True for a script of Hetu with a plan of the user's own, or with a limit of memory."""
    own = OWN_PLAN.fullmatch(option_of(command, "--pipeline") or "")
    if not own and option_of(command, "--memory-limit") is None:
        return False
    script = next((word for word in command if word.endswith(".py")), None)
    try:
        with open(script or "", encoding="utf-8") as file:
            return bool(USES_HETU.search(file.read()))
    except (OSError, UnicodeDecodeError):
        return False


def run(command, environment, workers):
    """The exit status of the check; what it has to say stands on standard error."""
    return subprocess.run(command, env={**environment, "HETU_CHECK": str(workers)}, stdin=subprocess.DEVNULL).returncode
