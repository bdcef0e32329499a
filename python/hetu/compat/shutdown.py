"""Ends the jobs that heturun has started from the current folder. `python/shutdown.sh` calls it.

    sh shutdown.sh [--now]

Chimera's script of this name ends every training process of the user, on all hosts. This one ends only jobs whose run folder
is in the folder `runs` here (or in HETU_RUNS). A job with a checkpoint folder saves first; --now ends it at once.
"""

from __future__ import annotations

import argparse
import os
import sys

import hetu as ht
from hetu.launch import found, jobs

WAIT_S = 60.0  # for a job to save and end


def folders_here() -> list[str]:
    """Returns the run folders of jobs that run on this host and were started from this folder."""
    runs = os.path.join(os.path.realpath(found.usual_runs()), "")
    return [path for path in map(os.path.realpath, found.living()) if path.startswith(runs)]


def end(folder: str, now: bool) -> int:
    """Ends a job and waits for its end. A job that can't save ends at once. Returns the exit status."""
    try:
        return int(jobs.stop(argparse.Namespace(job=folder, now=now, timeout=WAIT_S)))
    except found.JobError as error:
        if now:
            raise ValueError(str(error)) from None
    return end(folder, now=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog="shutdown.sh")
    parser.add_argument("--now", action="store_true", help="end the jobs without saving")
    with ht.one_line_errors("shutdown.sh"):
        now = parser.parse_args(arguments).now
        folders = folders_here()
        if not folders:
            print(f"no job of {found.usual_runs()} in this folder runs on this host; heturun ps lists those of other "
                  "folders")
        return max([end(folder, now) for folder in folders], default=0)
    return 1


if __name__ == "__main__":
    sys.exit(main())
