"""The two kinds of training that heturun --elastic runs, and the notes of their workers. Scripts that take the flags of
train_bert.py receive a round's layout as flags. Scripts of hetu.torch receive it in the environment (--layout). A third
kind is in hetu.compat.varuna.run_varuna."""
import json
import os
import re

from hetu.launch.elastic_layout import given_layout, layout_of
from hetu.launch.pipelines import option_of

NOTES = "HETU_ROUND"  # variable with the file for the notes of a round's workers; see supervise.py

REFUSED = "another round would fail in the same way; the job ends"


class Notes:
    """The notes of a round's workers.

    joined: the workers train in a loop that saves and continues.
    saved: they have saved a checkpoint.
    saves: (store, step) of each checkpoint of hetu.varuna that they have begun, which may be incomplete.
    hangs: they made no progress.
    step: the last step that heturun has heard of, or None.
    faults: the faults of HETU_FAULT that have happened, as texts.
    refused: the reason why every round would fail, or "".
    """

    def __init__(self, path):
        self.joined, self.saved, self.hangs, self.refused = False, False, False, ""
        self.saves, self.step, self.faults = [], None, set()
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            note = json.loads(line)
            self.joined = self.joined or "joined" in note
            self.saved = self.saved or "saved" in note
            self.saves += [(note["store"], note["step"])] if "store" in note else []
            self.hangs = self.hangs or "hangs" in note
            self.faults.update([note["fault"]] if "fault" in note else [])
            self.refused = self.refused or str(note.get("refused", ""))
            self.step = note.get("step", self.step) if "store" not in note else self.step

    def last_step(self, saved):
        """Returns words for the last step, or "". saved: the step of the newest checkpoint, or None. A worker can end
        between this checkpoint and its report of the step."""
        steps = [step for step in (self.step, saved) if step is not None]
        return f" after step {max(steps)}" if steps else ""


class FlagTraining:
    """A script that takes the flags of train_bert.py."""

    def __init__(self, command):
        self.words = command
        self.first = layout_of(command)

    def command(self, layout, is_first):
        more = [] if option_of(self.words, "--sums") else ["--sums", "tree"]
        resume = [] if is_first or "--resume" in self.words else ["--resume"]
        return [*self.words, *layout.flags(), *more, *resume]

    def environment(self, _layout, _used):
        return {}

    def newest_checkpoint(self):
        """Returns a value that changes with each new checkpoint of the command's folder, and with nothing else there, such
        as the lock that every round takes."""
        folder = option_of(self.words, "--checkpoint")
        try:
            steps = [name for name in os.listdir(folder) if name.startswith("step-")]
            made = [os.path.join(folder, name, "manifest.json") for name in steps]
            return max(((os.stat(path).st_mtime_ns, path) for path in made if os.path.exists(path)), default=None)
        except OSError:
            return None

    def saved_step(self):
        """Returns the step of the newest checkpoint, or None."""
        newest = self.newest_checkpoint()
        step = newest and re.search(r"step-0*(\d+)", newest[1])
        return int(step[1]) if step else None

    def continuation(self):
        """Describes where the next round begins."""
        step = self.saved_step()
        return "begins again: it has no checkpoint yet" if step is None else f"continues from its checkpoint of step {step}"

    def fault(self, notes, _status):
        """Returns the reason why the job ends after a round, or ""."""
        return REFUSED if notes.refused else ""


class LayoutTraining:
    """A script of hetu.torch. It names its checkpoint folder itself, so its workers note each save."""

    def __init__(self, layout, command):
        self.words = command
        self.first = given_layout(layout)
        self.threads = None  # of each worker, the same in all rounds

    def command(self, _layout, _is_first):
        return self.words

    def environment(self, layout, used):
        """PyTorch's sums may depend on the number of threads, so all rounds have that of the first one."""
        if self.threads is None:
            from hetu import _hetu  # imported late: --help doesn't need it

            self.threads = str(max(1, _hetu.machine_cores() // max(used.values())))
        return {"HETU_ELASTIC": f"{layout.pipelines}x{layout.stages}x{layout.micro_batches}",
                "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or self.threads}

    def newest_checkpoint(self):
        return None

    def saved_step(self):
        return None

    def continuation(self):
        return "continues from its newest checkpoint"

    def fault(self, notes, status):
        """Returns the reason why the job ends after a round with this status, or ""."""
        if notes.refused:
            return REFUSED
        if status or notes.joined:
            return ""
        return ("the command has not entered hetu.torch.loop(), so nothing was saved and no round could continue it; use "
                "that loop, or start the command without --elastic")


def training_of(layout, command):
    """Returns the training of a command. `layout`: the text of --layout, or None. Raises LayoutError."""
    return LayoutTraining(layout, command) if layout else FlagTraining(command)
