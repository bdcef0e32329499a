"""Runs other training libraries on each worker of a pipeline as if the worker were the only process.

Accelerate, the Trainer of transformers and Lightning look for other processes in the environment. They would wrap the model
in DistributedDataParallel, give each process different samples and average losses. In a pipeline all workers need the same
samples, and the Pipeline handles all communication between them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator

from hetu import _hetu
from hetu.process import leave

# Variables that torchrun, mpirun, srun and others set, and that the libraries read.
_LAUNCHER = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|TORCHELASTIC_\w+|MPI_LOCAL\w+|"
                       r"(OMPI_COMM_WORLD|MV2_COMM_WORLD|PMI|SLURM|JSM_NAMESPACE)_\w+")


@contextlib.contextmanager
def single_process() -> Iterator[int]:
    """Hides from training libraries that this process is one of several workers. Yields the worker's number.

    Create `TrainingArguments`, `Accelerator` or Lightning's `Trainer` inside the `with` block. Afterwards the libraries
    have the worker's number, so that only worker 0 prints, logs and writes files. Every worker enters it. Throws
    RuntimeError if Accelerate was set up for several processes before.
    """
    worker = int(leave.transport(_hetu.env()["worker"]).worker)  # joins the job, which needs the variables
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if _LAUNCHER.fullmatch(name)}
    try:
        yield worker
    finally:
        os.environ.update(hidden)
    _set_number(worker)


def _set_number(worker: int) -> None:
    """Sets the worker's number in the libraries that were imported."""
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is not None and accelerate.PartialState._shared_state:
        state = accelerate.PartialState()
        if state.num_processes > 1:
            raise RuntimeError(f"Accelerate has been set up for {state.num_processes} processes, so that it would wrap the "
                               f"model and give each worker other samples. Make the first TrainingArguments or Accelerator "
                               f"of the script inside `with hetu.torch.single_process():`")
        for kept in (state, accelerate.AcceleratorState):  # an Accelerator copies the values of PartialState
            if kept._shared_state:
                kept._shared_state.update(process_index=worker, local_process_index=worker)
    lightning = sys.modules.get("lightning_utilities.core.rank_zero")
    if lightning is not None:
        lightning.rank_zero_only.rank = worker
