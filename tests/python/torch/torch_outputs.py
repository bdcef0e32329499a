"""Workers of outputs_test.py: gradients of several step() calls, outputs and metrics, compared with plain PyTorch."""

import copy

import torch
from torch import nn

import hetu.torch

ROWS, WIDTH, MICROS = 9, 6, 4
PLANS = {"1f1b": {}, "zb-h1": {}, "zb-v": {}, "chimera": {}, "gpipe": {"pipelines": 2}, "1f1b tied": {}}


class Head(nn.Module):
    """Returns an output of every kind: rows, a tensor without rows, and text."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a dict."""
        return {"logits": self.linear(x), "mean": x.mean(), "name": "head"}


def made():
    """Returns a model of four pieces with buffers."""
    torch.manual_seed(1)
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.BatchNorm1d(WIDTH)) for _ in range(3)],
                         Head())


def loss_of(out, y):
    """Returns a mean over samples."""
    return nn.functional.mse_loss(out["logits"], y)


def apart(pipe, whole):
    """Returns the greatest distance of gradients, and whether all bits are the same."""
    known = dict(whole.named_parameters(remove_duplicate=False))
    pairs = [(p.grad, known[name].grad) for name, p in pipe.named_parameters()]
    return (max(float((a - b).norm() / b.norm().clamp_min(1e-6)) for a, b in pairs),
            all(torch.equal(a, b) for a, b in pairs))


def accumulated(plan, **options):
    """Compares three calls whose gradients add up, and a fourth that replaces them."""
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)])
    if "tied" in plan:
        model[3][0].weight = model[0][0].weight
    whole = copy.deepcopy(model)
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), plan.split()[0], MICROS, **PLANS[plan], **options)
    draw = torch.Generator().manual_seed(1)
    for call in range(4):
        x, y = torch.randn(2, pipe.pipelines, ROWS, WIDTH, generator=draw)
        found = pipe.step(x[pipe.pipeline], y[pipe.pipeline], accumulate=call in (1, 2), factor=0.25)
        if call == 3:
            whole.zero_grad()
        plain = 0.0
        for d in range(pipe.pipelines):
            for a, b in zip(x[d].tensor_split(MICROS), y[d].tensor_split(MICROS), strict=True):
                part = nn.functional.mse_loss(whole(a), b) * (len(a) / (pipe.pipelines * ROWS))
                (part * 0.25).backward()
                plain += part.item()
        far, same = apart(pipe, whole)
        exact = plan in ("1f1b", "zb-h1", "zb-v") and not options
        assert same if exact else far < 2e-6, (plan, call, far)
        assert found == plain if exact else abs(found - plain) < 1e-6 * plain, (plan, call, found, plain)
    print(f"ACCUMULATED {plan} {len(options)}: worker {pipe.transport.worker}", flush=True)


def outputs(plan):
    """Compares predict(), evaluate() with metrics, and step() with outputs."""
    model, whole = made(), made()
    pipe = hetu.torch.Pipeline(model, loss_of, plan.split()[0], MICROS, **PLANS[plan])
    draw = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, pipe.pipelines, 2 * ROWS, WIDTH, generator=draw)
    mine, target = x[pipe.pipeline], y[pipe.pipeline]
    for rows in (2 * ROWS, 3):
        with torch.no_grad():
            want = whole.eval()(mine[:rows])
        got = pipe.predict(mine[:rows])
        assert list(got) == list(want) and got["name"] == "head" and got["mean"].shape == (min(rows, MICROS),), got
        torch.testing.assert_close(got["logits"], want["logits"])

    def near(out, target):
        assert len(out["logits"]) == len(target) == 2 * ROWS
        return ((out["logits"] - target).abs() < 1).float().mean()

    metrics = {"near": near, "largest": lambda out, target: out["logits"].max()}
    loss, found = pipe.evaluate(mine, target, metrics=metrics)
    with torch.no_grad():
        want = [whole(part) for part in x]
    for name, metric in metrics.items():
        plain = sum(float(metric(out, part)) for out, part in zip(want, y, strict=True)) / pipe.pipelines
        assert abs(found[name] - plain) < 1e-5, (plan, name, found, plain)
    assert abs(loss - pipe.evaluate(mine, target)) == 0
    other, values, out = pipe.evaluate(mine, target.numpy(), metrics={"zero": lambda out, target: 0}, return_outputs=True)
    assert other == loss and values == {"zero": 0.0} and torch.allclose(out["logits"], want[pipe.pipeline]["logits"])
    pipe.train()
    whole.train()
    first, out = pipe.step(mine, target, return_outputs=True)
    parts = [whole(part)["logits"] for part in mine.split(5)]
    torch.testing.assert_close(out["logits"], torch.cat(parts).detach())
    assert not out["logits"].requires_grad and isinstance(first, float)
    print(f"OUTPUTS {plan}: worker {pipe.transport.worker}", flush=True)


def main():
    """Runs all cases on two workers."""
    torch.set_num_threads(1)
    for plan in PLANS:
        accumulated(plan)
        accumulated(plan, loss_weight=lambda out, y: len(y))
        if "tied" not in plan:
            outputs(plan)


if __name__ == "__main__":
    main()
