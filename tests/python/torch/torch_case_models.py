"""The modules of cases_test.py, which have the form of the models in PyTorch's own tests of pipelining."""

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split

WIDTH = 8


def linear():
    """Returns a layer that keeps the shape."""
    return nn.Linear(WIDTH, WIDTH)


def two_layers():
    """Returns a layer, a ReLU and a layer."""
    return nn.Sequential(linear(), nn.ReLU(), linear())


class Identity(torch.autograd.Function):
    """Returns a view of its input."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Product(torch.autograd.Function):
    """A matrix product that checks which gradients are needed."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return gradient @ b.T if ctx.needs_input_grad[0] else None, a.T @ gradient if ctx.needs_input_grad[1] else None


class EndsInAView(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        return Identity.apply(torch.relu(self.layer(x)))


class OwnProduct(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return Product.apply(x, self.weight)


class WeightTwice(OwnProduct):
    def forward(self, x):
        return torch.relu(x @ self.weight) @ self.weight


class Halves(nn.Module):
    """Splits a value in two by one node of the graph."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = linear(), nn.Linear(WIDTH // 2, WIDTH)

    def forward(self, x):
        one, two = self.layer(x).split(WIDTH // 2, -1)
        return self.last(torch.tanh(one) + torch.relu(two))


class ThreeOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = linear(), linear()

    def forward(self, x):
        return self.one(x), self.two(x), torch.ones(1)


class TakesThree(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, values):
        one, two, three = values
        return self.layer(one * two + three)


class WithText(nn.Module):
    """Passes text on together with a tensor, and computes with it."""

    def __init__(self, text):
        super().__init__()
        self.layer, self.text = linear(), text

    def forward(self, given):
        x = self.layer(given["x"])
        return {"x": torch.tanh(x) if given["text"] == "none" else torch.relu(x), "text": self.text}


class WithoutText(WithText):
    def __init__(self):
        super().__init__("")

    def forward(self, given):
        return self.layer(given["x"])


class PassesOn(nn.Module):
    """Passes on an input that no computation uses."""

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, given):
        return {"x": torch.relu(self.layer(given["x"])), "unused": given["unused"]}


class Ends(PassesOn):
    def forward(self, given):
        return self.layer(given["x"])


# Models with the cuts of torch.distributed.pipelining.


class ReadsTwice(nn.Module):
    """A parameter that two stages read, and a value that skips a stage."""

    def __init__(self):
        super().__init__()
        self.shared, self.other = (nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(2))
        self.one, self.two = linear(), linear()

    def forward(self, x, y):
        x = x @ self.shared
        skipped = x
        x = torch.relu(x + y)
        pipe_split()
        x = self.one(x @ self.shared)
        pipe_split()
        x = (torch.relu(x) + skipped) @ self.other
        pipe_split()
        return torch.relu(self.two(x))


class FourModules(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(two_layers() for _ in range(4))

    def forward(self, x, y):
        for part in self.parts[:3]:
            x = part(x)
            pipe_split()
        return self.parts[3](x) - y


class TwoNames(nn.Module):
    """One parameter under two names, each read on a different stage."""

    def __init__(self):
        super().__init__()
        self.name = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.other_name = self.name
        self.one, self.two = linear(), linear()

    def forward(self, x, y):
        x = torch.relu(self.one(x @ self.name + y))
        pipe_split()
        return torch.relu(self.two(x @ self.other_name))


class NestedBlock(nn.Module):
    """A cut inside a module. The part after it changes a value in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.one, self.two = linear(), linear()

    def forward(self, x, added):
        x = self.one(self.conv(x))
        pipe_split()
        x.add_(added)
        return torch.relu(self.two(x))


class NestedBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = NestedBlock(), NestedBlock()

    def forward(self, x, added):
        x = self.first(x, added)
        pipe_split()
        return self.second(x, added)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(two_layers() for _ in range(8)))

    def forward(self, x):
        return self.layers(x)
