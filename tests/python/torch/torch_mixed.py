"""Cases of torch_worker.py in mixed precision: torch.autocast, a GradScaler, a schedule of rates and clipping, compared with
plain PyTorch over the same micro-batches."""

import torch
from torch import nn

import hetu.torch
from hetu.torch.blocks import pieces_of

ROWS, EACH, STEPS, WIDTH, BAD_STEP = 22, 6, 6, 12, 2  # the last micro-batch has 4
CASES = {
    "bf16 zb-h1": (torch.bfloat16, {"schedule": "zb-h1", "with_recompute": True}),
    "bf16 varuna": (torch.bfloat16, {"schedule": "varuna"}),
    "bf16 pipelines": (torch.bfloat16, {"schedule": "1f1b", "pipelines": 2}),
    "fp16 1f1b": (torch.float16, {"schedule": "1f1b"}),
    "fp16 zb-v": (torch.float16, {"schedule": "zb-v"}),
    "fp16 pipelines": (torch.float16, {"schedule": "zb-h1", "pipelines": 2}),
}


class Block(nn.Module):
    """Uses a weight twice, has dropout, and contains a product outside autocast, whose gradients have its type."""

    def __init__(self):
        super().__init__()
        self.twice, self.norm, self.exact = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        x = x + nn.functional.dropout(self.twice(torch.tanh(self.twice(self.norm(x)))), 0.2, self.training)
        with torch.autocast("cpu", enabled=False):
            return x + self.exact(x.float())


def made(seed):
    """Returns a model of four blocks."""
    torch.manual_seed(seed)
    return nn.Sequential(*[Block() for _ in range(4)])


class Side:
    """A model's optimizer, schedule of rates and gradient scaler."""

    def __init__(self, parameters, scaler):
        self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        self.rates = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.2, total_steps=STEPS + 1)
        self.scaler = scaler

    def update(self, clip):
        """Updates the weights like a script with mixed precision. Returns the gradient norm."""
        self.scaler.unscale_(self.optimizer)
        norm = float(clip())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.rates.step()
        return norm


def plain_step(whole, batches, dtype, step, scaler, pipelines):
    """Runs each micro-batch's forward in a separate autocast region, and its backward outside. Returns the loss.

    Gradients are summed within each pipeline first, as in the job. In another order the weights would differ in their last
    bits, and a weight next to a rounding boundary would then enter the next step as another float16."""
    rows, total = sum(len(x) for x, _ in batches), 0.0
    parameters, sums = list(whole.parameters()), []
    for micro, (x, y) in enumerate(batches):
        with torch.autocast("cpu", dtype):
            for number, piece in enumerate(pieces_of(whole)):
                torch.manual_seed(hetu.torch.seed_of(0, step, micro, number))
                x = piece(x)
            part = nn.functional.mse_loss(x, y) * (len(y) / rows)
        scaler.scale(part).backward()
        total += part.item()
        if (micro + 1) % (len(batches) // pipelines) == 0:
            sums.append([p.grad for p in parameters])
            whole.zero_grad()
    for parameter, *grads in zip(parameters, *sums, strict=True):
        parameter.grad = sum(grads[1:], grads[0])
    return total


def spoil(parameters):
    """Sets one gradient element to infinity."""
    next(iter(parameters)).grad.view(-1)[3] = float("inf")


def in_one_region(pipe, dtype, x, y):
    """Checks that weights that change between two calls in one autocast region take effect in the second call: no cast of
    the old weights is kept."""
    own = [p.detach() for p in pipe.parameters()]
    before = [p.clone() for p in own]
    with torch.autocast("cpu", dtype):
        first = pipe.evaluate(x, y)
        for parameter in own:
            parameter.mul_(0.5)
        second = pipe.evaluate(x, y)
    with torch.autocast("cpu", dtype):
        assert first != second == pipe.evaluate(x, y), (first, second)
    for parameter, value in zip(own, before, strict=True):
        parameter.copy_(value)


def run(name, micros, seed):
    """Trains both. One step has an infinite gradient on one worker of one pipeline."""
    dtype, options = CASES[name]
    scaled = dtype == torch.float16
    pipe = hetu.torch.Pipeline(made(seed), nn.functional.mse_loss, micro_batches=micros, **options)
    whole = made(seed)
    how = {"init_scale": 2.0**10, "growth_interval": 2, "enabled": scaled}
    ours = Side(pipe.parameters(), hetu.torch.GradScaler(pipe, **how))
    theirs = Side(whole.parameters(), torch.amp.GradScaler("cpu", **how))
    draw = torch.Generator().manual_seed(seed)
    apart, scales = [], []
    for step in range(STEPS):
        x, y = torch.randn(2, pipe.pipelines, ROWS, WIDTH, generator=draw)
        with torch.autocast("cpu", dtype):
            found = pipe.step(x[pipe.pipeline], y[pipe.pipeline], ours.scaler if scaled else None)
        theirs.optimizer.zero_grad()
        batches = [pair for d in range(pipe.pipelines) for pair in zip(x[d].split(EACH), y[d].split(EACH), strict=True)]
        plain = plain_step(whole, batches, dtype, step, theirs.scaler, pipe.pipelines)
        if step == BAD_STEP and scaled:
            spoil(whole.parameters())
            if pipe.transport.worker == 0:
                spoil(pipe.parameters())
        norms = (ours.update(lambda: pipe.clip_grad_norm_(0.3)),
                 theirs.update(lambda: nn.utils.clip_grad_norm_(whole.parameters(), 0.3)))
        apart.append((found, plain))
        if not (step == BAD_STEP and scaled):
            apart.append(norms)
        scales.append(ours.scaler.get_scale())
        assert scales[-1] == theirs.scaler.get_scale(), (scales, theirs.scaler.get_scale())
        assert ours.rates.get_last_lr() == theirs.rates.get_last_lr()
    assert not scaled or scales == [2.0**10, 2.0**11, 2.0**10, 2.0**10, 2.0**11, 2.0**11], scales
    in_one_region(pipe, dtype, x[pipe.pipeline], y[pipe.pipeline])
    names = dict(whole.named_parameters())
    state = {n: p.detach() for n, p in pipe.named_parameters()}
    bits = all(torch.equal(p, names[n]) for n, p in state.items()) and all(a == b for a, b in apart)
    far = max(float((p - names[n].detach()).norm() / names[n].detach().norm()) for n, p in state.items())
    print(f"CASE {name}: worker {pipe.transport.worker} bits {bits} weights {far:.2e} "
          f"numbers {max(abs(a - b) / abs(b) for a, b in apart):.2e}", flush=True)
