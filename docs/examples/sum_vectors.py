"""Two or more processes add up vectors over a parameter server, without heturun.

    hetu ps serve --listen tcp://127.0.0.1:* --keys job.keys &
    python3 docs/examples/sum_vectors.py job.keys 0 2 &
    python3 docs/examples/sum_vectors.py job.keys 1 2
"""

import sys

import numpy as np

import hetu as ht

if len(sys.argv) != 4:
    sys.exit("usage: sum_vectors.py FILE MEMBER MEMBERS; `hetu ps serve --keys FILE` writes the file")
where, member, members = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ht.ps.connect(where, worker=member) as client:
    table = client.open("sums", np.zeros(1000, np.float32), members=members, member=member)
    for step in range(1, 4):
        table.push(np.full(1000, member + 1, np.float32))
        sums = table.read(least=step)  # once every member has pushed `step` times
    print(f"member {member}: {sums[0]:g} … {sums[-1]:g}")
