"""Workers of torch_test.py: Pipelines compared with plain PyTorch in one process, on the same micro-batches with the same
seeds.

torch_worker.py FOLDER SEED CASE...: each case is a line of CASES that fits the number of workers. Every worker checks its
own parameters, and prints one line per case. The test prints the seed."""

import copy
import os
import runpy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hetu.torch
import hetu.torch.blocks
import torch_bad
import torch_empty
import torch_grid
import torch_mixed
import torch_models
import torch_varuna
from hetu.torch.blocks import pieces_of
from torch_plain import refuses

ROWS, MICROS, STEPS, WIDTH = 22, 4, 5, 12  # 22 rows: the last micro-batch has 4, the others 6


class Deep(nn.Module):
    """A piece with dropout, a residual branch inside and a parameter that it uses twice."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        return x + nn.functional.dropout(self.twice(torch.tanh(self.twice(self.norm(x)))), 0.2, self.training)


class Fork(nn.Module):
    """Passes its input on together with its results: a mask, a value that isn't a tensor, and a skip over all later pieces.
    """

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a dict with the result, the skipped value, a mask, a number and None."""
        return {"x": self.linear(x), "skip": x * 2, "mask": x[:, :1] > 0, "scale": 0.5, "none": None}


class Middle(nn.Module):
    """Works on one of the values, and reads the mask."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, v):
        """Returns values of the same names."""
        return {**v, "x": self.linear(v["x"]).masked_fill(v["mask"], 0.0) * v["scale"]}


class Join(nn.Module):
    """The end of the skip."""

    def forward(self, v):
        """Returns one tensor."""
        assert v["none"] is None
        return v["x"] + v["skip"]


def deep():
    """Returns a model of eight pieces with dropout."""
    return nn.Sequential(*[Deep() for _ in range(8)])


def normed():
    """Returns a model with buffers."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()) for _ in range(4)])


def skipping():
    """Returns a model with several values over each boundary."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Fork(), Middle(), Middle(), Middle(), Join())


def tied():
    """Returns a model whose first weight is also the head, on the last stage."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), Deep(), Deep(), nn.Linear(WIDTH, WIDTH, bias=False))
    model[3].weight = model[0].weight
    return model


def cut():
    """Returns a model with CutPoints at uneven distances."""
    return nn.Sequential(Deep(), hetu.torch.CutPoint(), Deep(), Deep(), hetu.torch.CutPoint(), Deep(), hetu.torch.CutPoint(),
                         Deep())


TIE = {"tied": [("0.weight", "3.weight")]}
# name: model, schedule, options. Bits are equal where no sum goes over copies.
CASES = {
    "gpipe": (deep, "gpipe", {}), "1f1b": (deep, "1f1b", {}), "zb-h1": (deep, "zb-h1", {}), "zb-v": (deep, "zb-v", {}),
    "interleaved": (deep, "interleaved-1f1b", {"chunks": 2}),
    "chimera": (deep, "chimera", {}), "varuna": (deep, "varuna", {}),
    "recomputed": (deep, "1f1b", {"with_recompute": True}), "zb-h1 recomputed": (deep, "zb-h1", {"with_recompute": True}),
    "norms": (normed, "zb-h1", {}), "norms recomputed": (normed, "1f1b", {"with_recompute": True}),
    "skips": (skipping, "1f1b", {}), "skips zb-v": (skipping, "zb-v", {}), "cuts": (cut, "zb-h1", {}),
    "told cuts": (deep, "1f1b", {"first_pieces": [0, 5]}),
    "tied": (tied, "1f1b", TIE), "tied zb-v": (tied, "zb-v", TIE), "tied chimera": (tied, "chimera", TIE),
    "pipelines": (deep, "1f1b", {"pipelines": 2}), "tied pipelines": (tied, "zb-h1", {"pipelines": 2, **TIE}),
}
SUMMED = ("chimera", "tied", "pipelines")  # sums over copies of a parameter, and therefore in another order


def plain_step(model, loss, batches, step):
    """Computes the gradients of one step in one process. Returns its loss."""
    rows = sum(len(x) for x, _ in batches)
    total = 0.0
    for micro, (x, y) in enumerate(batches):
        pieces = [*pieces_of(model)]
        for number, piece in enumerate(pieces):
            torch.manual_seed(hetu.torch.seed_of(0, step, micro, number))
            x = piece(x)
        part = loss(x, y) * (len(y) / rows)
        part.backward()
        total += part.item()
    return total


def check(name, seed):
    """Trains one case. Prints the differences of this worker's parameters, and whether all bits are equal."""
    make, schedule, options = CASES[name]
    torch.manual_seed(seed)
    model = make()
    torch.manual_seed(seed)
    whole = make()
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), schedule, MICROS, **options)
    pipelines = pipe.pipelines
    if any(word in name for word in SUMMED):  # a rule that divides by roots of small numbers would amplify small differences
        rules = [torch.optim.SGD(p, lr=0.05, momentum=0.9) for p in (pipe.parameters(), whole.parameters())]
    else:
        rules = [torch.optim.AdamW(p, lr=0.01) for p in (pipe.parameters(), whole.parameters())]
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(STEPS):
        x, y = torch.randn(pipelines, ROWS, WIDTH, generator=draw), torch.randn(pipelines, ROWS, WIDTH, generator=draw)
        loss = pipe.step(x[pipe.pipeline], y[pipe.pipeline])
        norm = pipe.clip_grad_norm_(0.2)
        rules[0].step()
        rules[1].zero_grad()
        batches = [pair for d in range(pipelines) for pair in zip(x[d].split(6), y[d].split(6), strict=True)]
        plain = plain_step(whole, nn.MSELoss(), batches, step)
        plain_norm = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.2)
        assert float(norm) > 0.2, "no clipping was tried"
        rules[1].step()
        losses.append((loss, plain, float(norm), float(plain_norm)))
    names = dict(whole.named_parameters(remove_duplicate=False)) | dict(whole.named_buffers())
    state = {n: p.detach() for n, p in pipe.named_parameters()}
    state |= {pipe.pieces.names[id(b)]: b for stage in pipe.own.values() for b in stage.buffers()}
    other = [n for n, t in state.items() if not torch.equal(t, names[n])]
    apart = max(float((t.double() - names[n].detach().double()).norm() / names[n].detach().double().norm().clamp_min(1e-9))
                for n, t in state.items())
    far = max(abs(a - b) / abs(b) for one in losses for a, b in (one[:2], one[2:]))
    bits = not other and all(one[0] == one[1] and one[2] == one[3] for one in losses)
    evaluated = pipe.evaluate(x[pipe.pipeline], y[pipe.pipeline])
    whole.eval()
    with torch.no_grad():
        expected = sum(float(nn.MSELoss()(_forward(whole, a), b) * (len(a) / (pipelines * ROWS))) for a, b in batches)
    far = max(far, abs(evaluated - expected) / abs(expected))
    print(f"CASE {name}: worker {pipe.transport.worker} bits {bits} weights {apart:.2e} numbers {far:.2e}", flush=True)
    return pipe, rules[0]


def loaded(seed):
    """Checks DistributedSamplers for the number of pipelines. Two pipelines together get each sample of an epoch once, and
    evaluate() equals that of one process with both shares."""
    draw = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(4 * ROWS, WIDTH, generator=draw), torch.randn(4 * ROWS, WIDTH, generator=draw))
    torch.manual_seed(seed)
    model = deep().eval()
    whole = copy.deepcopy(model)
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, pipelines=2)

    def batches(pipeline):
        sampler = DistributedSampler(data, pipe.pipelines, pipeline, seed=seed)
        sampler.set_epoch(1)
        return DataLoader(data, ROWS, sampler=sampler)

    seen = []
    for (x, y), *shares in zip(batches(pipe.pipeline), batches(0), batches(1), strict=True):
        with torch.no_grad():
            plain = sum(float(nn.functional.mse_loss(whole(a), b)) for a, b in shares) / 2
        assert abs(pipe.evaluate(x, y) - plain) < 1e-6 * plain
        seen += [tuple(row.tolist()) for a, _ in shares for row in a]
    assert len(seen) == len(set(seen)) == len(data), "a sample that no pipeline or both had"
    print(f"LOADED: worker {pipe.transport.worker}", flush=True)


def _forward(model, x):
    for piece in pieces_of(model):
        x = piece(x)
    return x


def save(folder, seed):
    """Saves a checkpoint after five steps, and the result of one more step."""
    pipe, rule = check("zb-h1", seed)
    pipe.save(folder, rule)
    _one_more(pipe, rule, seed, os.path.join(folder, f"after_save_{pipe.transport.workers}.pt"))


def load(folder, seed):
    """Runs the same step, from the checkpoint, on other workers by another schedule."""
    torch.manual_seed(seed + 1)
    pipe = hetu.torch.Pipeline(deep(), nn.MSELoss(), "zb-v", MICROS)
    rule = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    pipe.load(folder, rule)
    _one_more(pipe, rule, seed, os.path.join(folder, f"after_load_{pipe.transport.workers}.pt"))


def dcp(folder, seed):
    """Saves by torch.distributed.checkpoint in stages. Other stages and a script with the whole model read it, and stages
    read the files of that script."""
    place = os.path.join(folder, "dcp")
    pipe, rule = check("zb-h1", seed)
    worker, workers = pipe.transport.worker, pipe.transport.workers
    refuses(RuntimeError, lambda: hetu.torch.save_dcp(pipe, place, rule), "a torch process group of all 2 workers")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=worker,
                                         world_size=workers)
    rule.param_groups[0]["lr"] = 0.02
    hetu.torch.save_dcp(pipe, place, rule)
    known = pipe.state_dict()
    _one_more(pipe, rule, seed, os.path.join(folder, f"after_dcp_{workers}.pt"))
    torch.manual_seed(seed + 1)
    other = hetu.torch.Pipeline(deep(), nn.MSELoss(), "zb-v", MICROS)
    second = torch.optim.AdamW(other.parameters(), lr=0.01)
    hetu.torch.load_dcp(other, place, second)
    assert other.steps == STEPS and second.param_groups[0]["lr"] == 0.02
    if worker == 0:
        plain_dcp(place, known)
    other.exchange(b"another script has been there")
    _one_more(other, second, seed, os.path.join(folder, f"after_dcp_again_{workers}.pt"))
    hetu.torch.load_dcp(other, f"{place}-plain", second)
    assert all(torch.equal(a + 1, b) for a, b in zip(known.values(), other.state_dict().values(), strict=True))
    torch.distributed.destroy_process_group()
    refuses(OSError, lambda: hetu.torch.load_dcp(other, folder, second), "not a complete checkpoint of torch")
    print(f"DCP: worker {worker}", flush=True)


def plain_dcp(place, known):
    """Loads and saves in a script that doesn't use stages."""
    from torch.distributed import checkpoint as files
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    whole = deep()
    rule = torch.optim.AdamW(whole.parameters(), lr=0.01)
    for parameter in whole.parameters():
        parameter.grad = torch.zeros_like(parameter)
    rule.step()
    weights, states = get_state_dict(whole, rule)
    found = {"model": weights, "optimizer": states}
    files.load(found, checkpoint_id=place, no_dist=True)
    set_state_dict(whole, rule, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), known.values(), strict=True))
    assert rule.param_groups[0]["lr"] == 0.02 and all(float(state["step"]) == STEPS for state in rule.state.values())
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter += 1
    weights, states = get_state_dict(whole, rule)
    files.save({"model": weights, "optimizer": states}, checkpoint_id=f"{place}-plain", no_dist=True)


def _one_more(pipe, rule, seed, path):
    draw = torch.Generator().manual_seed(seed + 2)
    x, y = torch.randn(ROWS, WIDTH, generator=draw), torch.randn(ROWS, WIDTH, generator=draw)
    loss = pipe.step(x, y)
    rule.step()
    state = pipe.state_dict()
    if pipe.transport.worker == 0:
        torch.save({"loss": torch.tensor(loss, dtype=torch.float64), **state}, path)


def main():
    """Runs the cases on the command line."""
    torch.set_num_threads(1)
    folder, seed, *cases = sys.argv[1:]
    for name in cases:
        if name in ("save", "load"):
            {"save": save, "load": load}[name](folder, int(seed))
        elif name.startswith("grid "):
            torch_grid.run(name, int(seed))
        elif name in torch_models.MODELS:
            torch_models.run(name, MICROS, int(seed))
        elif name in torch_mixed.CASES:
            torch_mixed.run(name, MICROS, int(seed))
        elif name == "empty":
            torch_empty.run(folder, int(seed))
        elif name == "dcp":
            dcp(folder, int(seed))
        elif name == "loaded":
            loaded(int(seed))
        elif name == "bad":
            torch_bad.run(folder)
        elif name == "trace":
            pipe, _ = check("zb-h1", int(seed))
            pipe.record()
            pipe.step(torch.ones(ROWS, WIDTH), torch.ones(ROWS, WIDTH))
            pipe.write_trace(os.path.join(folder, "trace.json"))
        elif name.startswith("varuna "):
            torch_varuna.run(name, folder, int(seed))
        elif name.startswith("page"):
            os.chdir(folder)
            runpy.run_path(f"{name}.py", run_name="__main__")
            print(f"RAN {name}", flush=True)
        else:
            check(name, int(seed))


main()
