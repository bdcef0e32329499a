"""Results of torchvision's ResNets for the cases of resnet_cases.py."""

from __future__ import annotations

from typing import Any

import torch
import torchvision

import resnet_cases as cases


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "torchvision": torchvision.__version__}


def model_of(name: str, stem: str, classes: int) -> Any:
    """Returns torchvision's model. The stem "cifar" replaces the first convolution by one for small images and removes the
    pooling."""
    model = getattr(torchvision.models, name)(num_classes=classes)
    if stem == "cifar":
        model.conv1 = torch.nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    return model


def shapes(name: str, stem: str = "imagenet", classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Returns names and shapes of parameters and buffers."""
    return {n: tuple(t.shape) for n, t in model_of(name, stem, classes).state_dict().items()}


def started(case: cases.Case) -> Any:
    """Returns the case's model with its seeded weights."""
    model = model_of(*case[:3])
    drawn = cases.weights({n: tuple(p.shape) for n, p in model.named_parameters()})
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(drawn[name]))
    return model


def parameters(name: str, stem: str, classes: int) -> dict[str, tuple[int, ...]]:
    """Returns names and shapes of parameters."""
    return {n: tuple(p.shape) for n, p in model_of(name, stem, classes).named_parameters()}


def gradients(
    case: cases.Case, weights: cases.Arrays, batch: cases.Arrays, kind: torch.dtype,
    layout: torch.memory_format = torch.contiguous_format,
) -> cases.Arrays:
    """Returns the gradients of all parameters after one batch from those weights."""
    model = model_of(*case[:3])
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(weights[name]))
    model = model.to(kind).to(memory_format=layout).train()
    logits = model(torch.from_numpy(batch["image"]).to(kind).to(memory_format=layout))
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch["label"]).long()).backward()
    return {n: p.grad.contiguous().numpy() for n, p in model.named_parameters()}


def run(case: cases.Case, model: Any = None) -> dict[str, Any]:
    """Returns the loss of one training batch, then running statistics and probed logits in evaluation, for `model` or the
    case's model."""
    model = model or started(case)
    data = cases.batch(case)
    image, label = torch.from_numpy(data["image"]), torch.from_numpy(data["label"]).long()
    loss = torch.nn.functional.cross_entropy(model.train()(image), label)
    statistics = {n: b.numpy().copy() for n, b in model.named_buffers()}
    with torch.no_grad():
        logits = model.eval()(image)
        evaluated = torch.nn.functional.cross_entropy(logits, label)
    return {
        "loss": loss.item(), "eval_loss": evaluated.item(), "logits": [logits[p].item() for p in cases.probes(case)],
        "statistics": cases.digests(statistics),
    }
