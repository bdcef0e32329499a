"""Trains models of the table in docs/pytorch.md on the workers of a job. Prints each comparison with plain PyTorch.

torch_table_worker.py SCHEDULE,SCHEDULE... MODEL...: worker 0 prints one line of JSON per case."""

import json
import sys
import warnings

import torch
import torch.distributed.pipelining
import torch.export
from torch.nn import functional
from torch.utils._pytree import tree_map

import hetu.torch
import hetu.torch.blocks
import torch_table_models as table

STEPS, MICRO_BATCHES = 2, 4
# Limit of the relative error of sums in another order, in float64. In float32 the error is not informative: batch norms over
# few values amplify rounding errors.
WRONG = 1e-9
_plain = {}


def loss_of(out, labels):
    """Returns the mean cross entropy."""
    return functional.cross_entropy(out.flatten(0, -2), labels.flatten())


def cast(value, dtype):
    """Returns the inputs with floating-point tensors converted to a type."""
    return tree_map(lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, value)


def made(name, dtype):
    """Returns the model, its inputs and labels."""
    row = table.ROWS_OF_TABLE[name]
    torch.manual_seed(1)
    model = row.make().to(dtype).train()
    inputs = cast(row.inputs(table.ROWS), dtype)
    with torch.no_grad():
        state = {key: value.clone() for key, value in model.state_dict().items()}
        shape = row.output(model(**inputs) if isinstance(inputs, dict) else model(inputs)).shape[:-1]
        model.load_state_dict(state)
    return model, inputs, torch.randint(0, 32, shape, generator=torch.Generator().manual_seed(2))


def reference(name, dtype):
    """Returns the losses and the state of the unsplit model in one process."""
    if (name, dtype) not in _plain:
        row = table.ROWS_OF_TABLE[name]
        model, inputs, labels = made(name, dtype)
        rule = torch.optim.SGD(model.parameters(), lr=0.05)
        losses, each = [], table.ROWS // MICRO_BATCHES
        for _ in range(STEPS):
            rule.zero_grad()
            total = 0.0
            for at in range(0, table.ROWS, each):
                part = tree_map(lambda t, at=slice(at, at + each): t[at], inputs)
                out = model(**part) if isinstance(part, dict) else model(part)
                loss = loss_of(row.output(out), labels[at:at + each]) / MICRO_BATCHES
                loss.backward()
                total += loss.item()
            rule.step()
            losses.append(total)
        _plain[name, dtype] = losses, {key: value.clone() for key, value in model.state_dict().items()}
    return _plain[name, dtype]


def apart(name, schedule, dtype):
    """Returns the relative difference of a Pipeline from the unsplit model, 0 where all bits are the same. Also returns true
    if two copies of a stage change buffers. The buffers are then those of the first copy and aren't compared."""
    row = table.ROWS_OF_TABLE[name]
    model, inputs, labels = made(name, dtype)
    scope = {"model": model, "inputs": inputs, "hetu": hetu, "torch": torch}
    exec(row.port, scope)
    pick = row.output if row.port != table.BLOCKS else lambda out: out
    pipe = hetu.torch.Pipeline(scope["pieces"], lambda out, y: loss_of(pick(out), y), schedule, MICRO_BATCHES)
    rule = torch.optim.SGD(pipe.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        losses.append(pipe.step(inputs, labels))
        rule.step()
    state = pipe.state_dict()
    placements = pipe.schedule.placements
    copied = len(placements) > 1 + max(p["model_stage"] for p in placements)
    buffers = set(dict(model.named_buffers())) if copied else set()
    want, names = reference(name, dtype)
    if set(state) != set(names):
        raise AssertionError(f"names differ: {sorted(set(state) ^ set(names))[:4]}")
    if losses == want and all(torch.equal(state[key], names[key]) for key in names):
        return 0.0, False
    far = [abs(a - b) / abs(b) for a, b in zip(losses, want, strict=True)]
    for key, value in names.items():
        if key in buffers:
            continue
        if value.is_floating_point():
            far.append(float((state[key].double() - value.double()).norm() / value.double().norm().clamp_min(1e-3)))
        elif not torch.equal(state[key], value):
            far.append(1.0)
    return max(far), bool(buffers & set(names))


def verdict(name, schedule):
    """Returns "bitwise", "sum order", with "buffers of one copy" if so, "refused: REASON" or "wrong: NUMBER"."""
    try:
        far, _ = apart(name, schedule, torch.float32)
        if far == 0:
            return "bitwise"
        exactly, own_buffers = apart(name, schedule, torch.float64)  # here, rounding can't hide a missing term
    except (ValueError, NotImplementedError) as error:
        return f"refused: {' '.join(str(error).split())}"
    return f"wrong: {far:.1e} in float32, {exactly:.1e} in float64" if exactly > WRONG else \
        "sum order, buffers of one copy" if own_buffers else "sum order"


def main():
    """Runs all schedules for each model."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    schedules, *models = sys.argv[1:]
    for name in models:
        for schedule in schedules.split(","):
            found = verdict(name, schedule)
            if hetu._hetu.env()["worker"] == 0:
                print("CASE " + json.dumps([name, schedule, found]), flush=True)


main()
