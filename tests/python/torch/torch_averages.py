"""Workers of averages_test.py: pipelines that average weights, compared with plain PyTorch that averages the same
groups.

torch_averages.py FOLDER SEED CASE...: every worker replays all pipelines in its own process, by the group log. It compares
its own parameters, buffers and optimizer states."""

import importlib
import json
import os
import sys
import time

import torch
from torch import nn

import hetu.torch
from hetu import _hetu
from hetu.averaging import Averaging

ROWS, MICROS, WIDTH = 8, 2, 6
RUNS = (7, 5)  # updates of each run
DEVICE = os.environ.get("HETU_TEST_DEVICE")  # "far": the simulated accelerator of tests/torch_device


class Deep(nn.Module):
    """A piece with dropout and buffers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        return x + nn.functional.dropout(torch.tanh(self.norm(self.linear(x))), 0.2, self.training)


def made(seed):
    """Returns a model of four pieces."""
    torch.manual_seed(seed)
    return nn.Sequential(*[Deep() for _ in range(4)])


def batch(seed, pipeline, step):
    """Returns the batch of one pipeline's step."""
    draw = torch.Generator().manual_seed(1000 * (seed + 1) + 100 * pipeline + step)
    return torch.randn(ROWS, WIDTH, generator=draw), torch.randn(ROWS, WIDTH, generator=draw)


class Plain:
    """One pipeline in one process. step() computes gradients, and update() updates the weights of one worker's part."""

    def __init__(self, seed, pipeline, rule, rows):
        self.seed, self.pipeline = seed, pipeline
        self.model = made(seed)
        self.rules = [rule([p for n, p in self.model.named_parameters() if row_of(n, rows) == row]) for row in range(rows)]
        self.done, self.stepped = [0] * rows, -1  # updates of each row; the step of the current gradients

    def step(self, number):
        """Computes gradients like Pipeline.step."""
        self.model.train()
        self.model.zero_grad()
        x, y = batch(self.seed, self.pipeline, number)
        for micro, (part, wanted) in enumerate(zip(x.chunk(MICROS), y.chunk(MICROS), strict=True)):
            for n, piece in enumerate(self.model):
                torch.manual_seed(hetu.torch.seed_of(0, number, self.pipeline * MICROS + micro, n))
                part = piece(part)
            (nn.functional.mse_loss(part, wanted) * (len(wanted) / ROWS)).backward()
        self.stepped = number

    def update(self, row):
        """Runs the optimizer of a worker. Returns the worker's parameters after the update."""
        self.rules[row].step()
        self.done[row] += 1
        return {n: w.clone() for n, w in self.named(row).items()}

    def named(self, row):
        """Returns the parameters of a worker's pieces."""
        return {n: p.data for n, p in self.model.named_parameters() if row_of(n, len(self.rules)) == row}

    def state(self, parameter):
        """Returns the optimizer's state of a parameter."""
        return next(rule.state[parameter] for rule in self.rules if parameter in rule.state)


def row_of(name, rows):
    """Returns the worker of a pipeline that has a parameter."""
    return int(name.split(".")[0]) // (4 // rows)


def mean(tensors):
    """Returns the mean, with additions and division as in the averager."""
    total = tensors[0].clone()
    for one in tensors[1:]:
        total += one
    return total * torch.tensor(1 / len(tensors), dtype=torch.float32)


def replay(log, pipelines, first, overlap):
    """Replays a run with plain pipelines by the groups of a log, from step `first` on. Returns their numbers of updates.
    Each row advances independently, as the workers do: a mean may depend on an update that another row made earlier."""
    rows = range(len(pipelines[0].rules))
    group_of = {(line["stage"], member, update): line for line in log if line["run"] == first
                for member, update in zip(line["members"], line["updates"], strict=True)}
    after = {}  # weights of a worker's stages after an update
    for one in pipelines:
        one.done, one.stepped = [first] * len(rows), first - 1
    stops = [max(u for _, d, u in group_of if d == p) for p in range(len(pipelines))]
    averaged = {(d, row): first for d in range(len(pipelines)) for row in rows}

    def average(d, row):
        """Applies the mean after the newest update, if all members have made theirs. Returns true if it did."""
        update = pipelines[d].done[row]
        if averaged[d, row] == update:
            return False
        members = list(zip(group_of[row, d, update]["members"], group_of[row, d, update]["updates"], strict=True))
        if any((row, m, u) not in after for m, u in members):
            return False
        for name, weight in pipelines[d].named(row).items():
            if len(members) > 1:
                weight.copy_(mean([after[row, m, u][name] for m, u in members]))
        averaged[d, row] = update
        return True

    def advance(d):
        """Advances one pipeline as far as possible. Returns true if there was anything to do."""
        one, moved = pipelines[d], False
        number = one.done[0]
        ready = all(done == number and (overlap or averaged[d, row] == number) for row, done in enumerate(one.done))
        if ready and number < stops[d] and one.stepped < number:
            one.step(number)
            moved = True
        for row in rows:
            if overlap and one.stepped < one.done[row] < stops[d]:
                continue  # a mean is applied after the next step's gradients are computed
            moved = average(d, row) or moved
            if one.stepped == one.done[row] == averaged[d, row]:
                new = one.update(row)
                after[row, d, one.done[row]] = new
                moved = True
        return moved

    while any(averaged[d, row] < stops[d] for d, row in averaged):
        assert any([advance(d) for d in range(len(pipelines))]), "the groups of the log wait for each other"
    become_one(pipelines)
    return [one.done[0] - first for one in pipelines]


def become_one(pipelines):
    """Averages all pipelines' weights and states, as at the end of a run."""
    for tensors in zip(*[[*p.model.parameters(), *p.model.buffers()] for p in pipelines], strict=True):
        made_of(tensors)
    for parameters in zip(*[p.model.parameters() for p in pipelines], strict=True):
        states = [p.state(one) for p, one in zip(pipelines, parameters, strict=True)]
        for key in states[0]:
            made_of([state[key] for state in states])


def made_of(tensors):
    """Replaces all tensors by their mean. Integers are rounded down."""
    if all(torch.equal(one, tensors[0]) for one in tensors):
        return
    whole = tensors[0].dim() == 0
    value = sum(float(one) for one in tensors) // len(tensors) if whole else mean([one.data for one in tensors])
    for one in tensors:
        one.data.fill_(value) if whole else one.data.copy_(value)


# name: settings, schedule
CASES = {
    "preduce": ({"sync_period": 3}, "1f1b"),
    "blocking": ({"sync_period": 3, "overlap": False}, "gpipe"),
    "all": ({"sync_period": 1}, "zb-h1"),
    "adpsgd-lockstep": ({}, "1f1b"),
}


def check(name, seed, folder, pipelines):
    """Compares one case with its replay."""
    settings, schedule = CASES[name]
    method = name if name.startswith("adpsgd") else "preduce"
    path = os.path.join(folder, f"{name}-{pipelines}.jsonl")
    how = Averaging(method, seed=seed, group_log=path, **settings)

    def rule(parameters):
        return torch.optim.AdamW(parameters, lr=0.05)

    pipe = hetu.torch.Pipeline(made(seed), nn.functional.mse_loss, schedule, MICROS, pipelines=pipelines, averaging=how,
                               device=DEVICE)
    own = rule(pipe.parameters())
    rows = pipe.transport.workers // pipelines
    plain = [Plain(seed, d, rule, rows) for d in range(pipelines)]
    worst, same = 0.0, True
    for updates in RUNS:
        first, turns = pipe.steps, 0
        for number in pipe.run(updates, own):
            if pipe.pipeline == 1:
                time.sleep(0.01)
            pipe.step(*batch(seed, pipe.pipeline, number))
            own.step()
            turns += 1
        assert pipe.steps == first + updates, f"{pipe.steps} steps after {updates} updates"
        pipe.exchange(b"")  # after this, groups of other stages are in the log, too
        with open(path) as lines:
            log = [json.loads(line) for line in lines]
        overlap = settings.get("overlap", True) and settings.get("sync_period") != 1
        counts = replay(log, plain, first, overlap)
        assert counts[pipe.pipeline] == turns, f"{turns} turns, {counts} in the log"
        assert pipelines * updates <= sum(counts) < pipelines * (updates + 1), counts
        whole = dict(plain[0].model.named_parameters()) | dict(plain[0].model.named_buffers())
        found = {n: p.detach() for n, p in pipe.named_parameters()}
        pairs = [(p, whole[n].detach()) for n, p in found.items()]
        pairs += [(b, whole[pipe.pieces.names[id(b)]]) for stage in pipe.own.values() for b in stage.buffers()]
        pairs += [(own.state[p][key], plain[0].state(whole[n])[key]) for n, p in pipe.named_parameters()
                  for key in own.state[p]]
        pairs = [(a.cpu(), b) for a, b in pairs]
        same = same and all(torch.equal(a, b) for a, b in pairs)
        worst = max(worst, *(float((a - b).double().norm() / b.double().norm().clamp_min(1e-9)) for a, b in pairs))
    print(f"CASE {name}/{pipelines}: worker {pipe.transport.worker} bits {same} far {worst:.1e} groups "
          f"{len([line for line in log if len(line['members']) > 1])}", flush=True)
    pipe.release()


class Sum(nn.Module):
    """A piece whose gradient doesn't depend on its weights. The order of averages therefore doesn't change the sum of all
    updates."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        """Returns the input, and one number per sample."""
        x, known = x if isinstance(x, tuple) else (x, 0.0)
        return x, known + (x * self.weight).sum(1)


def straggler(method, seed):
    """Checks that other pipelines continue, and that no update is lost, if pipeline 1 takes 60 ms more per step."""
    count = hetu.torch.Pipeline([Sum() for _ in range(4)], lambda out, y: out[1].mean(), "1f1b", MICROS, pipelines=2,
                                averaging=Averaging(method, seed=seed))
    rule = torch.optim.SGD(count.parameters(), lr=0.5)
    turns, total = 0, torch.zeros(WIDTH, dtype=torch.float64)
    for number in count.run(30, rule):
        x, _ = batch(seed, count.pipeline, number)
        if count.pipeline == 1:
            time.sleep(0.06)
        count.step(x, x)
        rule.step()
        turns, total = turns + 1, total + x.double().mean(0)
    told = [json.loads(text) for text in count.exchange(json.dumps([turns, total.tolist()]).encode())]
    each = count.transport.workers // 2
    fast, slow = told[0][0], told[each][0]
    wanted = -0.5 * (torch.tensor(told[0][1]) + torch.tensor(told[each][1])) / 2
    far = max(float((p.detach() - wanted).norm() / wanted.norm()) for p in count.parameters())
    print(f"STRAGGLER {method}: worker {count.transport.worker} fast {fast} slow {slow} far {far:.1e}", flush=True)
    count.release()


def bad(pipelines):
    """Checks that each mistake gives one line on every worker, and that the current run continues afterwards."""
    def pipe_of(averaging="preduce", schedule="1f1b", dtype=torch.float32, **more):
        model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype) for _ in range(4)])
        if "tied" in more:
            model[3].weight = model[0].weight
        return hetu.torch.Pipeline(model, nn.MSELoss(), schedule, MICROS, pipelines=pipelines, averaging=averaging, **more)

    def refuses(call, text):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert text in str(error) and "\n" not in str(error), str(error)
        else:
            raise AssertionError(f"nothing said '{text}'")

    x = torch.ones(ROWS, WIDTH)
    refuses(lambda: pipe_of(Averaging("adpsgd", weights="staleness")), "weights by staleness are for preduce")
    refuses(lambda: pipe_of(schedule="chimera"), "which would average with different groups: choose a schedule")
    refuses(lambda: pipe_of(tied=[("0.weight", "3.weight")]), "one parameter on workers 0 and 1 of a pipeline")
    refuses(lambda: pipe_of(dtype=torch.float64), "'0.weight' is float64" if pipe_row() == 0 else "'2.weight' is float64")
    torch.manual_seed(1)
    pipe = pipe_of()
    rule = torch.optim.SGD(pipe.parameters(), lr=0.1)
    scaler = hetu.torch.GradScaler(pipe)
    refuses(lambda: pipe.step(x, x),
            "step: with averaging (preduce), call step() once per iteration of `for step in pipe.run(")
    refuses(lambda: next(pipe.run(0, rule)), "run: updates must be at least 1, got 0")
    for _ in pipe.run(2, rule):
        refuses(lambda: next(pipe.run(2, rule)), "run: the previous run has not ended")
        refuses(lambda: pipe.evaluate(x, x), "evaluate: during a run each pipeline has its own weights")
        refuses(lambda: pipe.save("nowhere", rule), "save: during a run each pipeline")
        refuses(pipe.state_dict, "state_dict: during a run each pipeline")
        refuses(lambda: pipe.step(x, x, scaler), "takes no scaler, because pipelines would skip different updates")
        pipe.step(x, x)
        refuses(lambda: pipe.step(x, x), "call step() once per iteration")
        rule.step()
    moved = next(pipe.parameters())
    pipe.evaluate(x, x)
    run = pipe.run(3, rule)
    next(run)
    pipe.step(x, x)
    moved.data = moved.data.clone()
    refuses(lambda: next(run), "was replaced (.data, .to()); change its values in place")
    print(f"BAD: worker {pipe.transport.worker}", flush=True)
    pipe.release()


def pipe_row():
    """Returns this worker's stage in one of two pipelines."""
    return _hetu.env()["worker"] % 2


def main():
    """Runs the cases on the command line: CASE/PIPELINES."""
    torch.set_num_threads(1)
    if DEVICE:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "torch_device"))
        importlib.import_module(DEVICE).load()
    folder, seed, *cases = sys.argv[1:]
    for case in cases:
        name, _, pipelines = case.partition("/")
        if name == "bad":
            bad(int(pipelines))
        elif name == "straggler":
            straggler(pipelines, int(seed))
        else:
            check(name, int(seed), folder, int(pipelines))


if __name__ == "__main__":
    main()
