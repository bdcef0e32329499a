"""A worker that adds its number to a table on the job's parameter servers: `sum_worker.py STEPS`. It adds STEPS times
together with all other workers, and then prints the table's values. It prints `up` when it has started."""
import os
import sys

import numpy as np

import hetu as ht

steps = int(sys.argv[1])
rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
with ht.ps.connect(os.environ["HETU_SERVERS"], worker=rank) as client:
    table = client.open("sums", np.zeros(1000, np.float32), members=size, member=rank)
    for step in range(1, steps + 1):
        table.push(np.full(1000, rank + 1, np.float32))
        sums = table.read(least=step)
        if step == 20:
            print("up", os.environ["HETU_JOB"], flush=True)
    print(f"holds {sums.min():g} to {sums.max():g}")
