"""Display of traces in notebooks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from hetu.place import refuse


class Trace:
    """The trace that a run wrote (job.run(trace="run.json")), with the prediction above the measurement. A notebook shows
    it as a figure; print() shows the table of `hetu timeline`. `options` are those of the command, such as steps=3."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = os.fspath(path)
        self.options = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        if not os.path.isfile(self.path):
            refuse(f"Trace {self.path}: there is no such file; job.run(trace=…) writes one when it ends")

    def _drawn(self, form: str) -> str:
        beside = os.path.join(os.path.dirname(sys.executable), "hetu")
        tool = beside if os.access(beside, os.X_OK) else shutil.which("hetu")
        if tool is None:
            raise OSError("the command hetu, which draws traces, is not found; see README, Start")
        done = subprocess.run([tool, "timeline", self.path, "--format", form, *self.options], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return done.stdout

    def _repr_svg_(self) -> str:
        return self._drawn("svg")

    def __str__(self) -> str:
        return self._drawn("grid")

    def __repr__(self) -> str:
        return f"<hetu.Trace {self.path}>"
