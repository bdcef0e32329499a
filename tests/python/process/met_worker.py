"""A process of a separately started job that only joins the rendezvous and prints the participants. `met_worker.py [open]`
also joins the links, and waits for a line on standard input before it ends. `[alone]` prints the result of its environment.
"""
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
