"""Placement of pipelines: one row per stage, one column per pipeline. Equal neighbouring rows form one stage.

rgpu(host, i) is the i-th worker of a host, gpu(i) that of this host. `--devices NAME` selects a list; the default is
`my_device`. A name pipe_<pipelines>_<stages> that is not defined here is applied to the started workers.
"""
from hetu.devices import cpu, gpu, rcpu, rgpu

__all__ = ["cpu", "gpu", "my_device", "pipe_2_4", "pipe_4_4", "pipe_8_2", "pipe_8_4", "pipe_16_1", "pipe_16_4", "rcpu",
           "rgpu"]

pipe_2_4 = [
    [rgpu("w0", 0), rgpu("w0", 4)],
    [rgpu("w0", 1), rgpu("w0", 5)],
    [rgpu("w0", 2), rgpu("w0", 6)],
    [rgpu("w0", 3), rgpu("w0", 7)],
]

pipe_4_4 = [
    [rgpu("w0", 0), rgpu("w0", 4), rgpu("w1", 0), rgpu("w1", 4)],
    [rgpu("w0", 1), rgpu("w0", 5), rgpu("w1", 1), rgpu("w1", 5)],
    [rgpu("w0", 2), rgpu("w0", 6), rgpu("w1", 2), rgpu("w1", 6)],
    [rgpu("w0", 3), rgpu("w0", 7), rgpu("w1", 3), rgpu("w1", 7)],
]

pipe_8_4 = [[rgpu(f"w{w}", start + stage) for w in range(4) for start in (0, 4)] for stage in range(4)]

pipe_16_4 = [[rgpu(f"w{w}", start + stage) for w in range(8) for start in (0, 4)] for stage in range(4)]

# Two stages of two rows each.
pipe_8_2 = [[rgpu(f"w{w}", start + row // 2) for w in range(2) for start in (0, 2, 4, 6)] for row in range(4)]

# One stage: data parallelism.
pipe_16_1 = [[rgpu(f"w{w}", i) for w in range(2) for i in range(8)] for _ in range(4)]

my_device = pipe_4_4
