"""A process of a job started by hand that only meets the others: it prints who takes part. `met_worker.py [open]`: joins the
links too and waits for a line on standard input before it leaves; `[alone]`: says what its environment makes of it."""
import sys

import hetu as ht
from hetu import _hetu
from hetu.process import leave

with ht.one_line_errors("met_worker.py"):
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "alone":
        print("alone" if _hetu.env()["workers"] == 1 else "of several", flush=True)
        sys.exit(0)
    print("met", *_hetu.started(), flush=True)
    if what == "open":
        links = leave.transport(_hetu.env()["worker"])
        print("linked", links.worker, links.workers, flush=True)
        sys.stdin.readline()
