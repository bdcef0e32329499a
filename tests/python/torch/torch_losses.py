"""Workers of losses_test.py: losses that aren't means over samples, compared with plain PyTorch on the whole batch.

Every worker checks its own parameters and prints one line per case."""

import warnings

import torch
from torch import nn

import hetu.torch
from hetu.varuna import CutPoint, Varuna

WORDS, WIDTH, LENGTH, MICROS = 50, 16, 12, 4
LENGTHS = [12, 12, 11, 10, 3, 2, 1, 1]  # labels per row, followed by padding
EMPTY = [12, 12, 0, 0, 3, 2, 1, 1]  # the second micro-batch has no label


def made():
    """Returns a model of four pieces."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WORDS))


def batch(lengths, seed):
    """Returns words and labels, one row for each length."""
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.randint(0, WORDS, (len(lengths), LENGTH), generator=draw) for _ in range(2))
    for row, length in enumerate(lengths):
        y[row, length:] = -100
    return x, y


def tokens(out, y):
    """Returns a mean over labels."""
    return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten(), ignore_index=-100)


def summed(out, y):
    """Returns a sum over labels."""
    return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum")


class Classes(nn.Module):
    """Moves classes to the dimension where nn.CrossEntropyLoss expects them."""

    def forward(self, x):
        """Returns [batch, words, length]."""
        return x.transpose(1, 2)


def weight_of_output(out, y):
    """Returns a weight that could depend on outputs."""
    return y.ne(-100).sum()


class_weights = torch.linspace(0.5, 2.0, WORDS)
COUNT = {"loss_weight": hetu.torch.token_count()}
# name: loss, options, lengths, whether the model ends with Classes
LOSSES = {
    "count": (tokens, COUNT, LENGTHS, False),
    "empty": (tokens, COUNT, EMPTY, False),
    "outputs": (tokens, {"loss_weight": weight_of_output}, LENGTHS, False),
    "outputs empty": (tokens, {"loss_weight": weight_of_output}, EMPTY, False),
    "own": (hetu.torch.masked_lm_loss(), {}, EMPTY, False),
    "shifted": (hetu.torch.causal_lm_loss(), {}, EMPTY, False),
    "sum": (summed, {"loss_reduction": "sum"}, EMPTY, False),
    "module": (nn.CrossEntropyLoss(), {}, EMPTY, True),
    "module weights": (nn.CrossEntropyLoss(class_weights), {}, LENGTHS, True),
    "module sum": (nn.CrossEntropyLoss(reduction="sum"), {}, EMPTY, True),
}
PLANS = {"1f1b": {}, "zb-h1": {}, "chimera": {}, "gpipe": {"pipelines": 2}, "1f1b recomputed": {"with_recompute": True}}


def check(plan, name):
    """Compares three steps and an evaluation. Plain PyTorch takes the batches of both pipelines as one."""
    loss, options, lengths, ends = LOSSES[name]
    model, whole = (nn.Sequential(*made(), *([Classes()] if ends else [])) for _ in range(2))
    options = {**options, **PLANS[plan]}
    pipe = hetu.torch.Pipeline(model, loss, plan.split()[0], MICROS, check_loss_every=1, **options)
    rules = [torch.optim.SGD(p, lr=0.01) for p in (pipe.parameters(), whole.parameters())]
    for step in range(3):
        shares = [batch(lengths if share == 0 else lengths[::-1][2:] + [12, 7], 10 * step + share)
                  for share in range(pipe.pipelines)]
        x, y = (torch.cat(parts) for parts in zip(*shares, strict=True))
        found = pipe.step(*shares[pipe.pipeline])
        rules[1].zero_grad()
        plain = loss(whole(x), y)
        plain.backward()
        assert abs(found - plain.item()) < 1e-5 * abs(plain.item()), f"{plan} {name}: loss {found}, plain {plain.item()}"
        known = dict(whole.named_parameters())
        for key, p in pipe.named_parameters():
            apart = float((p.grad - known[key].grad).norm() / known[key].grad.norm())
            assert apart < 1e-5, f"{plan} {name}: the gradient of {key} is off by {apart}"
        for rule in rules:
            rule.step()
    evaluated, plain = pipe.evaluate(*shares[pipe.pipeline]), float(loss(whole(x), y).detach())
    assert abs(evaluated - plain) < 1e-5 * abs(plain), f"{plan} {name}: evaluated {evaluated}, plain {plain}"
    print(f"RIGHT {plan} {name}: worker {pipe.transport.worker}", flush=True)


def bits(plan, name):
    """Checks that a loop without pipelines over the same micro-batches gives the same bits."""
    loss, options, lengths, _ = LOSSES[name]
    model, whole = made(), made()
    pipe = hetu.torch.Pipeline(model, loss, plan, MICROS, **options)
    x, y = batch(lengths, 3)
    found = pipe.step(x, y)
    total = (y[..., 1:] if name == "shifted" else y).ne(-100).sum().item()
    plain = 0.0
    for a, b in zip(x.split(2), y.split(2), strict=True):
        count = (b[..., 1:] if name == "shifted" else b).ne(-100).sum().item()
        if count:
            part = loss(whole(a), b) * (count / total)
            part.backward()
            plain += part.item()
    known = dict(whole.named_parameters())
    assert found == plain, (plan, name, found, plain)
    assert all(torch.equal(p.grad, known[key].grad) for key, p in pipe.named_parameters()), (plan, name)
    print(f"BITS {plan} {name}: worker {pipe.transport.worker}", flush=True)


def rows(plan):
    """Trains batches that don't divide by four micro-batches, batches that leave some micro-batches empty, and pipelines
    with different numbers of rows."""
    for count in (9, 5, 3, 1):
        torch.manual_seed(1)
        model, whole = (nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]) for _ in range(2))
        whole.load_state_dict(model.state_dict())
        pipe = hetu.torch.Pipeline(model, nn.MSELoss(), plan.split()[0], MICROS, **PLANS.get(plan, {}))
        draw = torch.Generator().manual_seed(count)
        shares = [tuple(torch.randn(2, count + 2 * d, 4, generator=draw)) for d in range(pipe.pipelines)]
        found = pipe.step(*shares[pipe.pipeline])
        plain, total = 0.0, sum(len(x) for x, _ in shares)
        for x, y in shares:
            for a, b in zip(x.tensor_split(MICROS), y.tensor_split(MICROS), strict=True):
                if len(a):
                    part = nn.functional.mse_loss(whole(a), b) * (len(a) / total)
                    part.backward()
                    plain += part.item()
        known = dict(whole.named_parameters())
        exact = pipe.pipelines == 1 and plan != "chimera"
        for key, p in pipe.named_parameters():
            apart = float((p.grad - known[key].grad).norm() / known[key].grad.norm())
            assert torch.equal(p.grad, known[key].grad) or (not exact and apart < 1e-6), (plan, count, key, apart)
        assert found == plain if exact else abs(found - plain) < 1e-6 * plain, (plan, count, found, plain)
        with torch.no_grad():
            plain = sum(float(nn.functional.mse_loss(whole(x), y)) * len(x) / total for x, y in shares)
        evaluated = pipe.evaluate(*shares[pipe.pipeline])
        assert abs(evaluated - plain) < 1e-6 * plain, (plan, count, evaluated, plain)
    print(f"ROWS {plan}: worker {pipe.transport.worker}", flush=True)


def unused():
    """Checks that a micro-batch of weight 0 works with a value that the loss doesn't read."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(WIDTH, WORDS), nn.Linear(WIDTH, WORDS)

        def forward(self, x):
            return self.one(x[0]), self.two(x[1])

    class Fork(nn.Module):
        def forward(self, x):
            return x, torch.tanh(x)

    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), Fork(), Two())
    pipe = hetu.torch.Pipeline(model, lambda out, y: tokens(out[0], y), "1f1b", MICROS, first_pieces=[0, 2], **COUNT)
    pipe.step(*batch(EMPTY, 1))
    unread = [name for name, p in pipe.named_parameters() if p.grad is None]
    assert unread == ["2.two.weight", "2.two.bias"] * pipe.row, unread
    print(f"UNUSED: worker {pipe.transport.worker}", flush=True)


def refused(name, text, loss=tokens, lengths=LENGTHS, **options):
    """Checks that all workers stop at the first step with one line, and that the next step works with the check off."""
    pipe = hetu.torch.Pipeline(made(), loss, "1f1b", options.pop("micros", MICROS), **options)
    try:
        pipe.step(*batch(lengths, 1 + pipe.pipeline))
    except ValueError as error:
        assert text in str(error) and "loss_weight" in str(error) and "\n" not in str(error), str(error)
    else:
        raise AssertionError(f"{name}: nothing was said")
    print(f"REFUSED {name}: worker {pipe.transport.worker}", flush=True)


def quiet():
    """Checks that the loss check leaves random states and the loss's buffers unchanged, and changes no bit of the training.
    """

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, out, y):
            self.calls += 1
            return nn.functional.mse_loss(out, y)

    found = []
    for every in (0, 1):
        torch.manual_seed(1)
        loss = Counts()
        pipe = hetu.torch.Pipeline([nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)], loss, "1f1b", MICROS,
                                   check_loss_every=every)
        values = [pipe.step(torch.ones(10, 4), torch.zeros(10, 4)) for _ in range(3)]
        values.append(pipe.evaluate(torch.ones(10, 4), torch.zeros(10, 4)))
        found.append((values, float(loss.calls), torch.rand(3).tolist(), [p.grad.tolist() for p in pipe.parameters()]))
    assert found[0] == found[1], found
    print(f"QUIET: worker {pipe.transport.worker}", flush=True)


def drawing():
    """Trains a loss that draws random numbers. It is not checked, and one line reports this."""
    pipe = hetu.torch.Pipeline(made(), lambda out, y: tokens(nn.functional.dropout(out, 0.5), y), "1f1b", MICROS)
    pipe.step(*batch(LENGTHS, 1))
    other = torch.Generator().manual_seed(1)
    pipe = hetu.torch.Pipeline(made(), lambda out, y: tokens(out, y) * torch.rand((), generator=other), "1f1b", MICROS)
    pipe.step(*batch(LENGTHS, 1))
    print(f"DRAWING: worker {pipe.transport.worker}", flush=True)


def not_finite():
    """Checks that warnings name the worker and the micro-batch, in every mode: training, evaluation, a scaler, two
    pipelines, chimera."""
    for plan, options in (("1f1b", {}), ("1f1b", {"loss_weight": lambda out, y: len(y)}), ("gpipe", {"pipelines": 2}),
                          ("chimera", {}), ("zb-v", {})):
        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline([nn.Linear(4, 4) for _ in range(4)], nn.MSELoss(), plan, MICROS, **options)
        scaler = hetu.torch.GradScaler(pipe, init_scale=4.0)
        x, y = torch.ones(8, 4), torch.ones(8, 4)
        y[5] = float("inf") if pipe.pipeline == pipe.pipelines - 1 else 1.0
        for call, more, when in ((pipe.step, (), "in step 0"), (pipe.step, (scaler,), "in step 1"),
                                 (pipe.evaluate, (), "in an evaluation after 2 steps")):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert call(x, y, *more) == float("inf")
            texts = [str(one.message) for one in caught if "aren't finite" in str(one.message)]
            told = pipe.exchange("|".join(texts).encode())
            worker = {"gpipe": 1, "1f1b": 1, "zb-v": 0}.get(plan, [at for at, text in enumerate(told) if text][0])
            want = f"worker {worker}: losses of pipeline {pipe.pipelines - 1} {when} aren't finite: inf (micro-batch 2)"
            assert want in told[worker].decode() and sum(map(bool, told)) == 1, (plan, told)
    pipe = hetu.torch.Pipeline([nn.Linear(4, 4)], nn.MSELoss(), "1f1b", MICROS, pipelines=2, averaging="adpsgd")
    y = torch.ones(8, 4)
    y[5] = float("nan") if pipe.pipeline == 1 else 1.0
    for _ in pipe.run(1, torch.optim.SGD(pipe.parameters(), lr=0.1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pipe.step(torch.ones(8, 4), y)
        texts = [str(one.message) for one in caught if "aren't finite" in str(one.message)]
        assert ["losses of pipeline 1 in step 0" in text for text in texts] == [True] * pipe.pipeline, texts
    print(f"NOT FINITE: worker {pipe.transport.worker}", flush=True)


class Varunas(nn.Module):
    """Returns its own loss, a mean over labels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.words, self.cut, self.head = nn.Embedding(WORDS, WIDTH), CutPoint(), nn.Linear(WIDTH, WORDS)

    def forward(self, ids, labels):
        """Returns the loss."""
        return tokens(self.head(self.cut(self.words(ids))), labels)


def varuna(places):
    """Trains hetu.varuna with loss_weight=, with one replica and with two."""
    x, y = batch(EMPTY, 1)
    replicas = places.count(",") + 1
    model = Varuna(Varunas(), places, lambda size, device: {"ids": x[:size], "labels": y[:size]}, len(x), 1,
                   loss_weight=hetu.torch.token_count())
    share = slice(model.pipe.pipeline * len(x) // replicas, (model.pipe.pipeline + 1) * len(x) // replicas)
    loss, _, norm = model.step({"ids": x[share].numpy(), "labels": y[share]})
    whole = Varunas()
    plain = whole(x, y)
    plain.backward()
    want = float(torch.nn.utils.get_total_norm([p.grad for p in whole.parameters()]))
    assert abs(loss - plain.item()) < 1e-5 * loss and abs(norm - want) < 1e-5 * norm, (loss, plain, norm, want)
    evaluated = model.evaluate({"ids": x[share], "labels": y[share]})
    assert abs(evaluated - plain.item()) < 1e-5 * loss, (evaluated, plain)
    print(f"VARUNA {places} worker {model.pipe.transport.worker}", flush=True)


def main():
    """Runs all cases for two workers."""
    torch.set_num_threads(1)
    for plan in PLANS:
        for name in LOSSES:
            check(plan, name)
    for plan in ("1f1b", "zb-h1"):
        for name in ("count", "empty", "shifted"):
            bits(plan, name)
    refused("tokens", "step 0: the losses of ")
    refused("no label", "give nan, but", lengths=EMPTY)
    refused("sum", "added", tokens, loss_reduction="sum")
    refused("sum as a mean", "loss_reduction", summed)
    refused("one each", "the two halves of micro-batch 0", pipelines=2, micros=1)
    refused("samples together", "micro_batches=1", lambda out, y: out.std() + tokens(out, y), **COUNT)
    refused("bfloat16", "the losses of", lambda out, y: tokens(out.bfloat16(), y))
    for plan in (*PLANS, "zb-v", "varuna"):
        rows(plan)
    unused()
    varuna("0;1;")
    varuna("0,1;")
    quiet()
    drawing()
    not_finite()
    pipe = hetu.torch.Pipeline(made(), tokens, "1f1b", MICROS, **COUNT)
    try:
        pipe.step(*batch([0] * 8, 1))
    except ValueError as error:
        assert "so there is no mean" in str(error), error
        print(f"NOTHING: worker {pipe.transport.worker}", flush=True)


if __name__ == "__main__":
    main()
