"""The layouts of an elastic job: how a training is divided over the workers there are, so that every layout trains with the
same samples in the same micro-batches."""
import functools
import re
from typing import NamedTuple

from hetu.counted import counted
from hetu.launch.pipelines import option_of

SMALLEST = "1f1b"  # takes any number of stages and micro-batches
SHARED = ("--preduce", "--adpsgd", "--sync-method")  # pipelines of these jobs don't make the same steps


class LayoutError(ValueError):
    """The command can't be trained elastically."""


class Layout(NamedTuple):
    """`pipelines` pipelines of `stages` workers. Each pipeline trains `batch_size` samples per step in `micro_batches`
    micro-batches. With `shares`, pipeline d trains shares[d] micro-batches of the same size instead. `method`: the name of
    the method if other layouts may have shares; else ""."""

    pipelines: int
    stages: int
    micro_batches: int
    batch_size: int
    shares: tuple = ()
    method: str = ""

    @property
    def workers(self):
        return self.pipelines * self.stages

    def flags(self):
        """Returns the flags of a training script. They stand after the user's, so that they hold."""
        return ["--devices", f"pipe_{self.pipelines}_{self.stages}", "--micro-batches", str(self.micro_batches),
                "--batch-size", str(self.batch_size),
                *(["--shares", ",".join(map(str, self.shares))] if self.shares else []),
                *(["--pipeline", self.method] if self.method else [])]

    def __str__(self):
        grid = f"{counted(self.pipelines, 'pipeline')} x {counted(self.stages, 'stage')}"
        return grid + (f" with {' + '.join(map(str, self.shares))} micro-batches" if self.shares else "")


def given_layout(text):
    """Returns the layout of `--layout PxSxM`. The script knows its samples. Raises LayoutError."""
    found = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})x([1-9][0-9]{0,8})", text)
    if not found:
        raise LayoutError(f"--layout {text}: expected <pipelines>x<stages>x<micro-batches of each pipeline>, such as 2x4x8")
    return Layout(*map(int, found.groups()), 0)


def value_of(command, config, name):
    """Returns the value of a flag: of the command, else of its --config file, else None."""
    return option_of(command, f"--{name}") or config.get(name)


def config_of(command):
    """Returns the `flag: value` lines of the command's --config file. Raises LayoutError if it can't be read."""
    path = option_of(command, "--config")
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = [re.fullmatch(r"([a-z][a-z0-9-]*):\s*(.*?)\s*", line.rstrip("\n")) for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise LayoutError(f"--config {path} can't be read: {error}") from None
    return {match[1]: match[2].strip("'\"") for match in lines if match}


def number_of(command, config, name):
    text = value_of(command, config, name)
    if text is None or not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise LayoutError(f"--elastic needs --{name} N in the command, so that every layout trains the same samples; got "
                          f"{'none' if text is None else repr(text)}")
    return int(text)


def without_flush():
    """Returns the names of the methods whose steps don't end with a flush."""
    from hetu import schedule  # loads the compiled module, which --help doesn't need

    return {name for m in schedule.methods() if "steps" in m["options"] for name in (m["name"], *m["aliases"])}


def layout_of(command):
    """Returns the layout that a training command gives. Raises LayoutError if it isn't one that can change."""
    config = config_of(command)
    devices = value_of(command, config, "devices")
    grid = re.fullmatch(r"pipe_([1-9][0-9]{0,3})_([1-9][0-9]{0,3})", devices or "")
    if not grid:
        raise LayoutError("--elastic needs --devices pipe_<pipelines>_<stages> in the command or, for a hetu.torch script, "
                          f"--layout <pipelines>x<stages>x<micro-batches> before it; got {devices or 'none'}")
    for flag in SHARED:
        if any(word == flag or word.startswith(flag + "=") for word in command) or flag[2:] in config:
            raise LayoutError(f"--elastic trains synchronously: {flag} shares weights in another way; leave one out")
    method = value_of(command, config, "pipeline") or "pipedream"
    if method in without_flush():
        raise LayoutError(f"--elastic needs a method with a flush after each step, such as --pipeline 1f1b; {method} has "
                          "none")
    for name in ("partition", "replicas"):
        if value_of(command, config, name) is not None:
            raise LayoutError(f"--elastic cuts the model anew for each number of stages: leave out --{name}")
    if value_of(command, config, "shares") is not None:
        raise LayoutError("--elastic divides the micro-batches anew for each number of pipelines: leave out --shares")
    if option_of(command, "--checkpoint") is None:
        raise LayoutError("--elastic needs --checkpoint DIR in the command: a lost worker's state comes from there")
    return Layout(int(grid[1]), int(grid[2]), number_of(command, config, "micro-batches"),
                  number_of(command, config, "batch-size"), (), divisible_method(command, config, method))


def divisible_method(command, config, method):
    """Returns the name of the method if its pipelines may have different numbers of micro-batches in this training, else
    "": a plan of the user's own has one number, and the features below need equal pipelines."""
    from hetu import schedule

    if not schedule.is_method(method) or (value_of(command, config, "optimizer") or "").startswith("kfac"):
        return ""
    equal = ("trace", "tables", "chunks", "pairs", "concat")
    return "" if any(value_of(command, config, name) is not None for name in equal) else method


@functools.cache  # heturun asks twice a second
def takes(method, stages, shares):
    """Returns true if the method has a plan for each of these numbers of micro-batches."""
    if method == SMALLEST:
        return True
    from hetu import schedule

    try:
        for micro_batches in set(shares):
            schedule.generate(method, stages=stages, micro_batches=micro_batches)
    except ValueError:
        return False
    return True


def best_layout(first, workers):
    """Returns the layout of the same training on at most `workers` workers, or None without a worker.

    It keeps the samples of a micro-batch and the number of micro-batches of all pipelines together. It keeps the number of
    stages as long as there are enough workers, since a stage may fill its worker's memory. With fewer workers than stages,
    the model is cut into fewer stages. There are as many pipelines as the workers allow, whose shares of the micro-batches
    differ by at most 1; if shares may not differ, as many as divide the micro-batches evenly. Numbers of stages and
    micro-batches that the method doesn't take are left out. If that leaves none, the method is 1f1b."""
    if workers < 1:
        return None
    micro_batches, samples = first.pipelines * first.micro_batches, first.batch_size // first.micro_batches
    for stages in range(min(first.stages, workers), 0, -1):
        for pipelines in range(min(workers // stages, micro_batches), 0, -1):
            each, more = divmod(micro_batches, pipelines)
            shares = (each + 1,) * more + (each,) * (pipelines - more)
            if takes(first.method, stages, shares) if first.method else more == 0:
                return Layout(pipelines, stages, shares[0], samples * shares[0], shares if more else (), first.method)
    return best_layout(first._replace(method=SMALLEST), workers)
