"""Workers of calls_test.py. They make different calls, and all of them get one error that reports the difference."""

import re
import sys

import torch
from torch import nn

import hetu.torch


def made(**options):
    """Returns a pipeline, an optimizer and a gradient scaler."""
    torch.manual_seed(1)
    pipe = hetu.torch.Pipeline([nn.Linear(4, 4) for _ in range(4)], nn.MSELoss(), "1f1b", 2, **options)
    rule = torch.optim.SGD(pipe.parameters(), lr=0.1)
    return pipe, rule, hetu.torch.GradScaler(pipe, init_scale=4.0)


def expect(first, second, ones, twos, worker, is_first):
    """Calls one function on half of the workers and another on the rest. Checks that each worker gets the error."""
    try:
        first() if is_first else second()
    except RuntimeError as error:
        line = r"\(\) in torch_calls.py, line \d+"
        assert re.match(f"worker 0 called {ones}{line}, and worker . called {twos}{line}: all", str(error)), str(error)
        print(f"DIFFER {ones} {twos}: worker {worker}", flush=True)
    else:
        raise AssertionError(f"{ones} beside {twos}: nothing was said")


def calls(folder):
    """Runs different calls on two workers of one pipeline. After each error, they continue together."""
    pipe, rule, scaler = made()
    worker, x = pipe.transport.worker, torch.ones(4, 4)
    expect(lambda: pipe.step(x, x), lambda: pipe.state_dict(), "Pipeline.step", "Pipeline.state_dict", worker, worker == 0)
    pipe.step(x, x, scaler)
    known = pipe.state_dict()
    table = [
        (lambda: pipe.step(x, x), lambda: pipe.evaluate(x, x), "Pipeline.step", "Pipeline.evaluate"),
        (lambda: pipe.evaluate(x, x), pipe.state_dict, "Pipeline.evaluate", "Pipeline.state_dict"),
        (lambda: pipe.save(folder), lambda: pipe.step(x, x), "Pipeline.save", "Pipeline.step"),
        (lambda: pipe.clip_grad_norm_(1.0), lambda: pipe.step(x, x), "Pipeline.clip_grad_norm_", "Pipeline.step"),
        (lambda: scaler.step(rule), lambda: pipe.step(x, x), "GradScaler.step", "Pipeline.step"),
        (pipe.record, lambda: pipe.load(folder), "Pipeline.record", "Pipeline.load"),
        (lambda: pipe.write_trace(f"{folder}/trace"), pipe.grad_norm, "Pipeline.write_trace", "Pipeline.grad_norm"),
    ]
    for first, second, ones, twos in table:
        expect(first, second, ones, twos, worker, worker == 0)
    assert all(torch.equal(one, two) for one, two in zip(pipe.state_dict().values(), known.values(), strict=True))
    pipe.step(x, x)
    pipe.evaluate(x, x)


def averaging():
    """Runs different calls on four workers: within a pipeline, and in different pipelines."""
    pipe, rule, _ = made(pipelines=2, averaging="adpsgd")
    worker, x = pipe.transport.worker, torch.ones(4, 4)
    expect(lambda: pipe.evaluate(x, x), pipe.state_dict, "Pipeline.evaluate", "Pipeline.state_dict", worker,
           worker % 2 == 0) if pipe.pipeline == 0 else pipe.exchange(b"")
    if pipe.pipeline == 0:
        pipe.exchange(b"")
    expect(lambda: next(pipe.run(1, rule)), pipe.state_dict, "Averages.run", "Pipeline.state_dict", worker,
           pipe.pipeline == 0)
    for _ in pipe.run(1, rule):
        pipe.step(x, x)
        rule.step()
    pipe.evaluate(x, x)
    print(f"AVERAGED: worker {worker}", flush=True)


def skips():
    """Omits a call on worker 3. The call concerns only workers 1 and 3, because they have copies of one stage."""
    pipe, rule, _ = made(pipelines=2, shard_optimizer=True)
    x = torch.ones(4, 4)
    for step in range(2):
        pipe.step(x, x)
        if step == 0 or pipe.transport.worker != 3:
            rule.step()
    pipe.step(x, x)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["skips"]:
        skips()
    else:
        calls(sys.argv[1]) if len(sys.argv) > 1 else averaging()
