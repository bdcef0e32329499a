"""Cases of modes_test.py, in a job of two workers: users' changes to a model, and settings of PyTorch."""

import contextlib

import torch
from torch import nn

import hetu.torch
import torch_inside
from torch_plain import WIDTH, check_numbers, compare, linears, main, tied


class Unused(nn.Module):
    """A layer with an unused head."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.layer(x))


class Lora(nn.Module):
    """A frozen layer and a low-rank addition to it."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return torch.tanh(self.base(x) + self.up(self.down(x)))


class Aside(nn.Module):
    """Returns a second value together with the first."""

    def __init__(self):
        super().__init__()
        self.layer, self.aside = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.layer(x)), self.aside(x)


class Drop(nn.Module):
    """Ignores the second value, or passes it on."""

    def __init__(self, both=False):
        super().__init__()
        self.layer, self.both = nn.Linear(WIDTH, WIDTH), both

    def forward(self, values):
        out = torch.tanh(self.layer(values[0]))
        return (out, values[1]) if self.both else out


def crossed():
    """Returns pieces with two shared weights, which the stages have in different orders."""
    pieces = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    pieces[3].weight, pieces[2].weight = pieces[0].weight, pieces[1].weight
    return pieces


def unfreezing(step, pieces):
    """Freezes the lower half, and unfreezes it from the top, a piece per step. Finally the top is frozen."""
    for number, piece in enumerate(pieces):
        piece.requires_grad_(number + step >= 2 and not (step == 3 and number == 3))


def freeze_tied(step, pieces):
    """Freezes the shared weight through its second module for some steps."""
    if step in (1, 3):
        pieces[3].weight.requires_grad_(step == 3)


def frozen():
    """Compares gradual unfreezing, LoRA, frozen stages and unused parameters."""
    for schedule, options in (("1f1b", {}), ("zb-h1", {}), ("1f1b", {"pipelines": 2}), ("chimera", {}), ("zb-v", {})):
        exact = "pipelines" not in options and schedule != "chimera"
        rest = {"exact": exact, **options}
        compare(f"unfreezing {schedule} {options}", linears, schedule, change=unfreezing, **rest)
        compare(f"LoRA {schedule} {options}", lambda: [Lora() for _ in range(4)], schedule, **rest)
        compare(f"unused {schedule} {options}", lambda: [Unused() for _ in range(4)], schedule, **rest)
    for schedule in ("1f1b", "chimera", "zb-v", "interleaved-1f1b"):  # the last one: both ties join stages of both workers
        compare(f"crossed {schedule}", crossed, schedule, exact=False)
    for schedule in ("1f1b", "chimera"):
        compare(f"tied {schedule}", tied, schedule, exact=False, change=freeze_tied, tied=[("0.weight", "3.weight")])


def by_owner():
    """Sets a flag through pipe.parameters(), which holds each worker's own stages only."""
    for schedule in ("zb-h1", "1f1b"):
        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline(linears(), nn.MSELoss(), schedule, 2)
        for name, parameter in pipe.named_parameters():
            parameter.requires_grad_(name.startswith("3."))
        pipe.step(torch.ones(4, WIDTH), torch.zeros(4, WIDTH))
        found = {name for name, parameter in pipe.named_parameters() if parameter.grad is not None}
        assert found == {name for name, _ in pipe.named_parameters() if name.startswith("3.")}, found


def no_gradient():
    """Compares values between stages that no module or loss reads. Their parameters have no gradient."""
    def first_only(out, y):
        return nn.functional.mse_loss(out[0] if isinstance(out, tuple) else out, y)

    for schedule, options in (("1f1b", {}), ("zb-h1", {}), ("zb-v", {}), ("1f1b", {"pipelines": 2})):
        exact = not options
        for both in (False, True):
            compare(f"aside {schedule} {both}", lambda both=both: [Aside(), Drop(True), Drop(True), Drop(both)], schedule,
                    loss=first_only, exact=exact, **options)
        compare(f"aside of the last {schedule}", lambda: [*linears(3), Aside()], schedule, loss=first_only, exact=exact,
                **options)


def differing():
    """Checks that copies of a stage with different flags are refused."""
    torch.manual_seed(1)
    model = linears(2)
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, pipelines=2)
    if pipe.pipeline:
        model[0][0].weight.requires_grad_(False)
    try:
        pipe.step(torch.ones(4, WIDTH), torch.zeros(4, WIDTH))
    except ValueError as error:
        assert "requires_grad=True of a Linear parameter weight on worker 0 and False on worker 1" in str(error), str(error)
    else:
        raise AssertionError("nothing was said")


class Norms(nn.Module):
    """Batch norm, dropout and a buffer that forward replaces by another tensor."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.3)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        x = self.layer(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return torch.tanh(self.drop(self.norm(x)) + self.mean)


def freeze_norms(step, pieces):
    """Calls eval() on some modules, as a user might. In the last step, train() of the model undoes this."""
    if step == 0:
        pieces[1].norm.eval()
        pieces[3].norm.eval()
    if step == 1:
        pieces[2].eval()
    if step == 3:
        for piece in pieces:
            piece.train()


def modes():
    """Checks that eval() of modules stays as the user has set it, also across evaluate()."""
    for schedule, options in (("1f1b", {}), ("zb-v", {}), ("zb-h1", {"with_recompute": True})):
        pipe, _ = compare(f"eval() {schedule}", lambda: [Norms() for _ in range(4)], schedule, change=freeze_norms,
                          **options)
        assert all(module.training for stage in pipe.stages for module in stage.modules())
    torch.manual_seed(1)
    model = nn.Sequential(*[Norms().eval() for _ in range(4)])
    model[1].norm.train()
    hetu.torch.Pipeline(hetu.torch.split(model, at=["1", "2"]), nn.MSELoss(), "1f1b", 2)
    assert [m.training for m in model.modules() if isinstance(m, nn.BatchNorm1d)] == [False, True, False, False], "split()"


def copies():
    """Checks that evaluate() uses the buffers that state_dict() saves, where each copy of a stage has buffers."""
    for schedule, options in (("chimera", {}), ("1f1b", {"pipelines": 2}), ("dualpipe", {"micro_batches": 8})):
        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline([Norms() for _ in range(4)], nn.MSELoss(), schedule, **{"micro_batches": 4, **options})
        draw = torch.Generator().manual_seed(2)
        for step in range(3):
            x, y = (torch.randn(pipe.pipelines, 16, WIDTH, generator=draw) for _ in range(2))
            pipe.step(x[pipe.pipeline], y[pipe.pipeline])
            found = pipe.evaluate(x[pipe.pipeline], y[pipe.pipeline])
            whole = nn.Sequential(*[Norms() for _ in range(4)])
            whole.load_state_dict(pipe.state_dict())
            whole.eval()
            with torch.no_grad():
                expected = float(nn.functional.mse_loss(whole(x.flatten(0, 1)), y.flatten(0, 1)))
            check_numbers(f"evaluate {schedule} {options} step {step}", found, expected, False)
            sums = {}
            for stage in pipe.own.values():
                for buffer in stage.buffers():
                    sums.setdefault(pipe.pieces.names[id(buffer)], []).append(buffer.double().sum().item())
            for told in pipe.exchange(repr(sums).encode()):
                for name, values in eval(told).items():
                    assert len({*values, *sums.get(name, values)}) == 1, f"{schedule}, {name}: {values}, {sums.get(name)}"


def settings():
    """Compares autocast of any type, autocast without a cache, other default types and deterministic algorithms. Disabled
    gradients are refused."""
    @contextlib.contextmanager
    def default_dtype():
        torch.set_default_dtype(torch.float64)
        yield
        torch.set_default_dtype(torch.float32)

    @contextlib.contextmanager
    def deterministic():
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(False)

    class Ones(nn.Module):
        """Creates a tensor of the default type, and records the settings of its call."""

        def __init__(self):
            super().__init__()
            self.layer, self.seen = nn.Linear(WIDTH, WIDTH), []

        def forward(self, x):
            x = self.layer(x)
            self.seen.append((torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), torch.is_grad_enabled(),
                              torch.are_deterministic_algorithms_enabled(), torch.is_inference_mode_enabled()))
            return (x + torch.ones(WIDTH)).to(self.layer.weight.dtype)

    for name, inside in (("float64", default_dtype), ("deterministic", deterministic)):
        compare(name, lambda: [Ones() for _ in range(4)], "zb-h1", steps=2, settings=inside)
    for cached in (True, False):
        torch.manual_seed(1)
        model = [Ones() for _ in range(4)]
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-h1", 2)
        own = [piece for stage in pipe.own.values() for piece in stage.pieces]
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            pipe.step(torch.ones(4, WIDTH), torch.ones(4, WIDTH))
        assert all(piece.seen == 2 * [(True, cached, True, False, False)] for piece in own), own[0].seen
        for piece in own:
            piece.seen.clear()
        with torch.inference_mode():
            found = pipe.evaluate(torch.ones(4, WIDTH), torch.ones(4, WIDTH))
        assert all(piece.seen == 2 * [(False, True, False, False, True)] for piece in own), own[0].seen
        assert found == pipe.evaluate(torch.ones(4, WIDTH), torch.ones(4, WIDTH))
        for inside, text in ((torch.no_grad, "inside torch.no_grad()"),
                             (torch.inference_mode, "inside torch.inference_mode()")):
            try:
                with inside():
                    pipe.step(torch.ones(4, WIDTH), torch.ones(4, WIDTH))
            except RuntimeError as error:
                assert text in str(error), str(error)
            else:
                raise AssertionError(f"a step went through {text}")


def averaging():
    """Checks that, in pipelines that average weights, a frozen or unused parameter stays, and is trained once it is
    unfrozen."""
    from hetu.averaging import Averaging

    torch.manual_seed(1)
    model = [Unused() for _ in range(2)]
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2, pipelines=2, averaging=Averaging("preduce", sync_period=1))
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01, weight_decay=0.1)
    draw = torch.Generator().manual_seed(pipe.pipeline)
    model[0].layer.requires_grad_(False)
    before = {name: parameter.detach().clone() for name, parameter in pipe.named_parameters()}
    for thawed in (False, True):
        model[0].layer.requires_grad_(thawed)
        for _ in pipe.run(3, optimizer):
            x = torch.randn(8, WIDTH, generator=draw)
            pipe.step(x, x)
            optimizer.step()
        for name, parameter in pipe.named_parameters():
            stays = ".head." in name or (name.startswith("0.") and not thawed)
            assert torch.equal(parameter, before[name]) == stays, (name, thawed)
        state = pipe.state_dict()
        assert all(torch.equal(parameter, state[name]) for name, parameter in pipe.named_parameters())


def varuna():
    """Checks in hetu.varuna that eval() of a module stays, that train() and eval() apply to all modules, and that freezing
    applies to all replicas."""
    from hetu.varuna import CutPoint, Varuna

    class Model(nn.Module):
        """Two stages with a batch norm."""

        def __init__(self):
            super().__init__()
            self.first, self.norm, self.cut = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), CutPoint()
            self.last = nn.Linear(WIDTH, WIDTH)

        def forward(self, x, y):
            return nn.functional.mse_loss(self.last(self.cut(self.norm(self.first(x)))), y)

    def batch(size, device):
        return {"x": torch.ones(size, WIDTH, device=device).cumsum(0), "y": torch.zeros(size, WIDTH, device=device)}

    torch.manual_seed(1)
    whole = Model()
    whole.norm.eval()
    model = Varuna(whole, "0,1;", batch, 8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.set_optimizer(optimizer)
    whole.first.requires_grad_(False)
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step in range(3):
        if step == 2:
            whole.first.requires_grad_(True)
        model.step(batch(4, "cpu"))
        optimizer.step()
        frozen = [torch.equal(first[name], parameter) for name, parameter in model.named_parameters()
                  if name.startswith("first.")]
        assert frozen == 2 * [step < 2] and not whole.norm.training
    assert torch.equal(model.state_dict()["norm.running_mean"], torch.zeros(WIDTH)), "its statistics are those of the start"
    model.train()
    assert whole.norm.training and whole.last.training
    model.step(batch(4, "cpu"))
    assert not torch.equal(model.state_dict()["norm.running_mean"], torch.zeros(WIDTH))
    texts = model.pipe.exchange(repr([p.double().sum().item() for p in model.parameters()]).encode())
    assert len(set(texts)) == 1, "replicas are apart"
    model.eval()
    assert not whole.last.training


if __name__ == "__main__":
    main({**vars(torch_inside), **globals()})
