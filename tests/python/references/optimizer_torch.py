"""PyTorch's results for the cases of optimizer_cases.py. PyTorch has no LAMB, so it is computed by the formula of NVIDIA's
NVLAMB in float64."""

from __future__ import annotations

from typing import Any

import torch

import optimizer_cases as cases

L2 = {"SGD": "SGD", "Momentum": "SGD", "AdaGrad": "Adagrad", "Adam": "Adam", "AdamW": "AdamW"}


class Lamb(torch.optim.Optimizer):
    """LAMB by its formula, in float64 except for the stored weights."""

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        every = [p for group in self.param_groups for p in group["params"]]
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in every))
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                g = p.grad.double() / max(1.0, float(norm))
                t = s["t"] = s.get("t", 0) + 1
                s["m"] = 0.9 * s.get("m", torch.zeros_like(g)) + 0.1 * g
                s["v"] = 0.999 * s.get("v", torch.zeros_like(g)) + 0.001 * g * g
                u = s["m"] / (1 - 0.9**t) / (torch.sqrt(s["v"] / (1 - 0.999**t)) + 1e-6) + group["weight_decay"] * p.double()
                trust = p.double().norm() / u.norm() if group["weight_decay"] and p.norm() > 0 and u.norm() > 0 else 1.0
                p.copy_((p.double() - group["lr"] * trust * u).float())


def optimizer_of(name: str, parameters: dict[str, Any]) -> torch.optim.Optimizer:
    kind, given, rate = cases.OPTIMIZERS[name]
    settings = dict(given)
    decay = settings.pop("l2", None) or settings.pop("weight_decay")
    groups = [
        {"params": [p for n, p in parameters.items() if n.endswith("weight")], "weight_decay": decay},
        {"params": [p for n, p in parameters.items() if n.endswith("bias")], "weight_decay": 0.0},
    ]
    if kind == "LAMB":
        return Lamb(groups, rate)
    return getattr(torch.optim, L2[kind])(groups, lr=rate, **settings)


def scheduler_of(name: str, optimizer: torch.optim.Optimizer) -> Any:
    kind, given = cases.RATES[name]
    settings, lr = dict(given), torch.optim.lr_scheduler
    warmup = settings.pop("warmup", 0)
    if kind == "ReduceOnPlateau":
        return lr.ReduceLROnPlateau(optimizer, **settings)
    length = settings.pop("total", cases.STEPS) - warmup
    after: Any = {
        "constant": lambda: lr.ConstantLR(optimizer, factor=1.0),
        "step": lambda: lr.StepLR(optimizer, settings["every"], settings["gamma"]),
        "multi_step": lambda: lr.MultiStepLR(optimizer, settings["milestones"], settings["gamma"]),
        "exponential": lambda: lr.ExponentialLR(optimizer, settings["gamma"]),
        "polynomial": lambda: lr.PolynomialLR(optimizer, length, settings["power"]),
        "cosine": lambda: lr.CosineAnnealingLR(optimizer, length, settings["floor"]),
    }
    if not warmup:
        return after[kind]()
    first = lr.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    return lr.SequentialLR(optimizer, [first, after[kind]()], milestones=[warmup])


def run(optimizer_name: str, rate_name: str) -> dict[str, Any]:
    """Returns losses and rates of every step, and the last weights."""
    parameters = {n: torch.nn.Parameter(torch.from_numpy(w)) for n, w in cases.weights().items()}
    optimizer = optimizer_of(optimizer_name, parameters)
    scheduler = scheduler_of(rate_name, optimizer)
    losses, rates = [], []
    for batch in cases.batches():
        hidden = torch.tanh(torch.nn.functional.linear(
            torch.from_numpy(batch["x"]), parameters["fc1.weight"], parameters["fc1.bias"]))
        logits = torch.nn.functional.linear(hidden, parameters["fc2.weight"], parameters["fc2.bias"])
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch["label"]).long())
        optimizer.zero_grad()
        loss.backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        losses.append(loss.item())
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            scheduler.step(loss.item())
        else:
            scheduler.step()
    return {"losses": losses, "rates": rates, "weights": {n: p.detach().ravel().tolist() for n, p in parameters.items()}}
