"""Cases of torch_worker.py by Varuna's names: a model with CutPoints deep inside, called by keywords, beside its own
forward."""

import os

import torch
from torch import nn

from varuna import CutPoint, Varuna, get_this_rank_config_varuna, get_varuna_config

ROWS, CHUNK, STEPS, WORDS, WIDTH = 10, 3, 3, 32, 16  # the last micro-batch has one sample


class Block(nn.Module):
    """Adds to what it is given, where the mask lets it; it has branches that no tracer follows."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        """The same shape."""
        if float(self.linear.in_features) > x.dim() and self.training:
            return x + torch.tanh(self.linear(x)) * mask[..., None]
        return x + torch.tanh(self.linear(x)) * mask[..., None]


class Encoder(nn.Module):
    """Blocks with a CutPoint before each."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.cuts = nn.ModuleList(CutPoint() for _ in reversed(range(blocks)))

    def forward(self, x, mask):
        """The same shape."""
        for block, cut in zip(self.blocks, reversed(self.cuts), strict=True):
            x = block(cut(x), mask)
        return x


class Model(nn.Module):
    """A place table of its own, a skip over all cuts, a head with the weights of the embedding; gives (loss, logits)."""

    def __init__(self, tied, blocks=3):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(7, WIDTH))
        self.encoder = Encoder(blocks)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight.data.copy_(self.words.weight.data)

    def forward(self, ids, labels, mask=None, doubled=False):
        """Of ids and labels [rows, 7]."""
        x = (self.words(ids) + self.places).transpose(0, 1)  # samples are the second dimension over the cuts
        x = self.encoder(x, mask.transpose(0, 1)) + (x * 2 if doubled else x)
        logits = self.head(x.transpose(0, 1))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def batch_of(size, device, draw=None):
    """What get_batch_fn gives."""
    ids, labels = (torch.randint(0, WORDS, (size, 7), generator=draw, device=device) for _ in range(2))
    return {"ids": ids, "labels": labels, "mask": (ids > 3).float(), "doubled": True}


def made(seed, tied, stages, replicas, name=""):
    """(the wrapped model, the same alone)"""
    torch.manual_seed(seed)
    model = Model(tied)
    torch.manual_seed(seed)
    alone = Model(tied)
    if tied:
        alone.head.weight = alone.words.weight
    text = "".join(",".join(str(d * stages + s) for d in range(replicas)) + ";" for s in range(stages))
    assert get_varuna_config(text) == (stages, replicas)
    pairs = [("words.weight", "head.weight")] if tied else None
    wrapped = Varuna(model, text, batch_of, ROWS * replicas, CHUNK, shared_weights=pairs)
    here = wrapped.get_status()
    assert (here["stage"], here["replica"]) == get_this_rank_config_varuna(text, wrapped.pipe.transport.worker), name
    return wrapped, alone


def run(name, folder, seed):
    """"varuna [tied] P D": trains, evaluates, and goes on from a checkpoint as many pipelines of one stage."""
    words = name.split()
    tied, stages, replicas = "tied" in words, int(words[-2]), int(words[-1])
    wrapped, alone = made(seed, tied, stages, replicas, name)
    rules = [torch.optim.SGD(p, lr=0.1, momentum=0.9) for p in (wrapped.parameters(), alone.parameters())]
    wrapped.set_optimizer(rules[0])
    draw = torch.Generator().manual_seed(seed)
    apart = []
    for _ in range(STEPS):
        shares = [batch_of(ROWS, "cpu", draw) for _ in range(replicas)]
        found, overflow, norm = wrapped.step(shares[wrapped.get_status()["replica"]], clip_grad_max_norm=0.5)
        assert not overflow and norm == 0.5, (overflow, norm)
        rules[0].step()
        wrapped.zero_grad()
        rules[1].zero_grad()
        plain = whole_loss(alone.train(), shares, learn=True)
        assert float(nn.utils.clip_grad_norm_(alone.parameters(), 0.5)) > 0.5
        rules[1].step()
        apart.append((found, plain))
    evaluated = wrapped.eval().evaluate(shares[wrapped.get_status()["replica"]])
    apart.append((evaluated, whole_loss(alone.eval(), shares, learn=False)))
    tell(name, wrapped, alone, apart)
    store = os.path.join(folder, name.replace(" ", "-"))
    wrapped.checkpoint(store)
    again, _ = made(seed + 1, tied, 1, stages * replicas, name)  # other weights
    again.set_optimizer(torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9))
    again.load_checkpoint(store, STEPS)
    assert all(torch.equal(a, b) for a, b in zip(wrapped.state_dict().values(), again.state_dict().values(), strict=True))
    refuse(wrapped, batch_of(ROWS, "cpu", draw))


def whole_loss(alone, shares, learn):
    """Of one process, over the same micro-batches."""
    total = 0.0
    for share in shares:
        for at in range(0, ROWS, CHUNK):
            micro = {k: v[at:at + CHUNK] if isinstance(v, torch.Tensor) else v for k, v in share.items()}
            with torch.set_grad_enabled(learn):
                part = alone(**micro)[0] * (len(micro["ids"]) / (ROWS * len(shares)))
            if learn:
                part.backward()
            total += part.item()
    return total


def tell(name, wrapped, alone, apart):
    """The line that the test reads."""
    names = dict(alone.named_parameters(remove_duplicate=False))
    state = {n: p.detach() for n, p in wrapped.named_parameters()}
    bits = all(torch.equal(p, names[n]) for n, p in state.items()) and all(a == b for a, b in apart)
    far = max(float((p - names[n].detach()).norm() / names[n].detach().norm()) for n, p in state.items())
    print(f"CASE {name}: worker {wrapped.pipe.transport.worker} bits {bits} weights {far:.2e} "
          f"numbers {max(abs(a - b) / abs(b) for a, b in apart):.2e}", flush=True)


def refuse(wrapped, batch):
    """An infinite weight on one worker is an overflow on all; and lines for what is not carried."""
    wrapped.train()
    if wrapped.get_status()["stage"] == 0 and wrapped.get_status()["replica"] == 0:
        next(wrapped.parameters()).data.fill_(float("inf"))
    wrapped.values = 2
    _, overflow = wrapped.step(batch)
    assert overflow, "an overflow that nobody saw"
    told = [(lambda: wrapped(1), "has no forward"), (lambda: wrapped.eval().step(batch), "after eval"),
            (lambda: wrapped.train().step({**batch, "doubled": False}), "was True when"),
            (lambda: wrapped.step({"ids": batch["ids"]}), "get_batch_fn gave"),
            (lambda: wrapped.step(batch_of(4, "cpu")), r"share is 10"),
            (lambda: wrapped.to("cuda:0"), "on the CPU"), (lambda: wrapped.checkpoint("x", tempdir="y"), "not carried")]
    for call, text in told:
        try:
            call()
        except Exception as error:
            assert text in str(error) and "\n" not in str(error), str(error)
        else:
            raise AssertionError(f"nothing said '{text}'")
