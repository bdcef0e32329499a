"""Notes in the metadata of a Pipeline's trace: what `hetu plan` and `hetu compare` can't find in its events."""

from __future__ import annotations

import json
import os

from hetu import files, progress
from hetu.process import leave


def complete_trace(path: str | os.PathLike[str], samples: set[int]) -> None:
    """Adds the number of samples per micro-batch to a trace's costs, and the processes of workers whose numbers differ.
    Tells heturun that the trace is written.

    samples: the sizes of the recorded steps' micro-batches. If they differ, no number is added, and `hetu plan` refuses to
    scale the costs to other sizes without --micro-batch-size.
    """
    trace = files.read_json(path)
    metadata = trace["metadata"]
    if len(samples) == 1 and "costs" in metadata:
        metadata["costs"]["samples_per_micro_batch"] = next(iter(samples))
    if leave.numbering:
        metadata["numbering"] = leave.numbering
    files.write_text(path, json.dumps(trace))
    progress.tell_trace(path)
