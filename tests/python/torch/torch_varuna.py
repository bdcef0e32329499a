"""Cases of torch_worker.py with Varuna's names: a model with deeply nested CutPoints, called with keywords, compared with
its own forward."""

import copy
import json
import os

import torch
from torch import nn

from hetu.compat.varuna.placement import default_map
from hetu.torch import seed_of
from hetu.torch.blocks import pieces_of
from hetu.torch.tracing import split_at_cut_points
from hetu.torch.values import cut_rows
from hetu.varuna import checkpoint
from varuna import CutPoint, Varuna, get_this_rank_config_varuna, get_varuna_config

ROWS, CHUNK, STEPS, WORDS, WIDTH = 10, 3, 3, 32, 16  # the last micro-batch has one sample


class Block(nn.Module):
    """Adds to its input where the mask allows it. It has branches that no tracer can follow."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.linear, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(drop)

    def forward(self, x, mask):
        """Returns a tensor of the same shape."""
        x = self.drop(x)
        if float(self.linear.in_features) > x.dim() and self.training:
            return x + torch.tanh(self.linear(x)) * mask[..., None]
        return x + torch.tanh(self.linear(x)) * mask[..., None]


class Encoder(nn.Module):
    """Blocks with a CutPoint before each."""

    def __init__(self, blocks, drop):
        super().__init__()
        self.blocks = nn.ModuleList(Block(drop) for _ in range(blocks))
        self.cuts = nn.ModuleList(CutPoint() for _ in reversed(range(blocks)))

    def forward(self, x, mask):
        """Returns a tensor of the same shape."""
        for block, cut in zip(self.blocks, reversed(self.cuts), strict=True):
            x = block(cut(x), mask)
        return x


class Model(nn.Module):
    """A model with its own table of positions, a skip over all cuts, and a head with the weights of the embedding. It
    returns (loss, logits)."""

    def __init__(self, tied, blocks=3, drop=0.0):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(7, WIDTH))
        self.encoder = Encoder(blocks, drop)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight.data.copy_(self.words.weight.data)

    def forward(self, ids, labels, mask=None, doubled=False):
        """Computes the result of ids and labels [rows, 7]."""
        x = (self.words(ids) + self.places).transpose(0, 1)  # samples are the second dimension over the cuts
        x = self.encoder(x, mask.transpose(0, 1)) + (x * 2 if doubled else x)
        logits = self.head(x.transpose(0, 1))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def batch_of(size, device, draw=None):
    """Returns a batch, as get_batch_fn does."""
    ids, labels = (torch.randint(0, WORDS, (size, 7), generator=draw, device=device) for _ in range(2))
    return {"ids": ids, "labels": labels, "mask": (ids > 3).float(), "doubled": True}


def made(seed, tied, stages, replicas, name=""):
    """Returns (the wrapped model, the same model without a wrapper)."""
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
    """Runs a case. "varuna [tied] P D" trains, evaluates, and continues from a checkpoint as P·D pipelines of one stage.
    Others: "varuna grid P D", "varuna overflow P D", "varuna killed", "varuna on P,D …" (which saves at the first size) and
    "varuna from P,D …"."""
    words = name.split()
    kind = words[1]
    if kind in ("on", "from"):
        return on_from([tuple(map(int, word.split(","))) for word in words[2:]], folder, seed, save=kind == "on")
    if kind == "grid":
        return grid(int(words[2]), int(words[3]), seed)
    if kind == "overflow":
        return overflows(int(words[2]), int(words[3]), seed)
    if kind == "killed":
        return killed(folder, seed)
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
    incomplete(wrapped, again, store)
    refuse(wrapped, batch_of(ROWS, "cpu", draw))


def whole_loss(alone, shares, learn):
    """Returns the loss of one process, over the same micro-batches."""
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
    """Prints the line that the test reads."""
    names = dict(alone.named_parameters(remove_duplicate=False))
    state = {n: p.detach() for n, p in wrapped.named_parameters()}
    bits = all(torch.equal(p, names[n]) for n, p in state.items()) and all(a == b for a, b in apart)
    far = max(float((p - names[n].detach()).norm() / names[n].detach().norm()) for n, p in state.items())
    print(f"CASE {name}: worker {wrapped.pipe.transport.worker} bits {bits} weights {far:.2e} "
          f"numbers {max(abs(a - b) / abs(b) for a, b in apart):.2e}", flush=True)


def refuse(wrapped, batch):
    """Checks that an infinite weight on one worker is an overflow on all, and that unsupported calls give one-line errors.
    """
    wrapped.train()
    if wrapped.get_status()["stage"] == 0 and wrapped.get_status()["replica"] == 0:
        next(wrapped.parameters()).data.fill_(float("inf"))
    wrapped.values = 2
    _, overflow = wrapped.step(batch)
    assert overflow, "an overflow that nobody saw"
    told = [(lambda: wrapped(1), "has no forward"), (lambda: wrapped.eval().step(batch), "after eval"),
            (lambda: wrapped.train().step({**batch, "doubled": False}), "was True when"),
            (lambda: wrapped.step({"ids": batch["ids"]}), "get_batch_fn gave"),
            (lambda: wrapped.step(batch_of(4, "cpu")), "the tensors of the batch have 4 samples, but this "),
            (lambda: wrapped.step(batch_of(4, "cpu")), " is 10; pass 10 samples in every tensor"),
            (lambda: wrapped.to("cuda:0"), "computes on cpu")]
    for call, text in told:
        try:
            call()
        except Exception as error:
            assert text in str(error) and "\n" not in str(error), str(error)
        else:
            raise AssertionError(f"nothing said '{text}'")


def refused(call, text):
    """Checks that every worker reports the same single line."""
    try:
        call()
    except OSError as error:
        assert text in str(error) and "\n" not in str(error), str(error)
    else:
        raise AssertionError(f"nothing said '{text}'")


def incomplete(wrapped, again, store):
    """Checks that incomplete saves, missing files and changed bytes are refused on all workers. The previous checkpoint is
    then the last complete one. A background save, by replicas that share the work, is complete once its futures are done."""
    worker, say = wrapped.pipe.transport.worker, wrapped.pipe.state.agreed
    first = wrapped.get_status()["step"]
    done = wrapped.checkpoint(store, step=first + 1, tempdir=f"{store}-here", shard=True)
    done.result()
    say("uploaded")
    assert checkpoint.latest(store) == first + 1
    again.load_checkpoint(store, first + 1)
    place = checkpoint.folder_of(store, first + 1)
    marker = json.loads((place / "markers" / "complete_1.txt").read_text())
    file = next(name for name in sorted(marker["files"]) if name.startswith("opt-fp32"))
    for change, text in ((lambda: (place / file).write_bytes(b"x" * marker["files"][file][0]), "is damaged"),
                         (lambda: (place / file).unlink(), f"{file} is missing"),
                         (lambda: (place / "markers" / "complete_1.txt").unlink(), "markers/complete_1.txt is missing")):
        say("to be changed")
        if worker == 0:
            change()
        say("changed")
        refused(lambda: again.load_checkpoint(store, first + 1), text)
        if text == "is damaged":
            refused(lambda: again.load_checkpoint(store, first + 1, check_complete=False), f"{file} cannot be read")
    assert checkpoint.latest(store) == first
    again.load_checkpoint(store, first)


def overflows(stages, replicas, seed):
    """Makes an infinite float16 gradient in one stage of one replica. All workers report it, skip the step, and halve the
    scale, down to at least 4. The scale doubles after steps without overflow."""
    torch.manual_seed(seed)
    text = default_map(stages, replicas)
    wrapped = Varuna(Model(tied=True), text, batch_of, ROWS * replicas, CHUNK, fp16=True,
                     shared_weights=[("words.weight", "head.weight")])
    rule = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    wrapped.set_optimizer(rule, init_loss_scale=8.0, min_loss_scale=4.0)
    wrapped.scale.scaler.set_growth_interval(2)
    parameter = next(wrapped.parameters())
    draw = torch.Generator().manual_seed(seed)
    scales = []
    for bad in (True, True, False, False, False):
        here = bad and get_this_rank_config_varuna(text, wrapped.pipe.transport.worker) == (1, replicas - 1)
        hook = parameter.register_hook(lambda gradient: gradient * float("inf")) if here else None
        before = [p.detach().clone() for p in wrapped.parameters()]
        shares = [batch_of(ROWS, "cpu", draw) for _ in range(replicas)]
        loss, found, norm = wrapped.step(shares[wrapped.get_status()["replica"]], clip_grad_max_norm=0.5)
        assert found == bad and 0 < loss < 100 and (bad or norm <= 0.5), (found, loss, norm)
        if not found:
            rule.step()
        same = all(torch.equal(a, b) for a, b in zip(before, wrapped.parameters(), strict=True))
        assert same == bad, "an update that was not skipped, or skipped for nothing"
        scales.append(wrapped.get_loss_scale())
        if hook:
            hook.remove()
    assert scales == [4.0, 4.0, 4.0, 8.0, 8.0], scales
    print(f"OVERFLOW: worker {wrapped.pipe.transport.worker}", flush=True)


def seeded(pieces, value, micro, step):
    """Returns the loss of a micro-batch of the unsplit model, piece by piece, with the seeds of Varuna's pieces."""
    for number, piece in enumerate(pieces):
        torch.manual_seed(seed_of(0, step, micro, number))
        value = piece(value)
    return value[0]


def grid(stages, replicas, seed):
    """Compares loss and every gradient of three steps, and evaluate(), with one process. Covers sizes of micro-batches, tied
    weights, dropout and clipping."""
    for chunk, tied in ((1, False), (3, True), (10, False), (4, True)):
        torch.manual_seed(seed)
        model = Model(tied, drop=0.2)
        alone = copy.deepcopy(model)
        if tied:
            alone.head.weight = alone.words.weight
        pairs = [("words.weight", "head.weight")] if tied else None
        wrapped = Varuna(model, default_map(stages, replicas), batch_of, ROWS * replicas, chunk, shared_weights=pairs)
        wrapped.set_optimizer(torch.optim.SGD(wrapped.parameters(), lr=0.1))
        rules = [wrapped.optimizer, torch.optim.SGD(alone.parameters(), lr=0.1)]
        pieces = list(pieces_of(split_at_cut_points(alone, ["ids", "labels", "mask"], {"doubled": True})))
        draw = torch.Generator().manual_seed(seed)
        far = 0.0
        for step in range(STEPS):
            shares = [batch_of(ROWS, "cpu", draw) for _ in range(replicas)]
            loss, bad, norm = wrapped.step(shares[wrapped.get_status()["replica"]], clip_grad_max_norm=1.0)
            alone.zero_grad()
            plain = 0.0
            micros = wrapped.pipe.micro_batches
            sizes = cut_rows(ROWS, micros)
            for d, share in enumerate(shares):
                at = 0
                for m, rows in enumerate(sizes):
                    part = {k: v[at:at + rows] for k, v in share.items() if isinstance(v, torch.Tensor)}
                    one = seeded(pieces, part, d * micros + m, step) * (rows / (ROWS * replicas))
                    one.backward()
                    plain, at = plain + one.item(), at + rows
            own = float(nn.utils.clip_grad_norm_(alone.parameters(), 1.0))
            names = dict(alone.named_parameters(remove_duplicate=False))
            far = max(far, abs(loss - plain) / plain, abs(norm - min(own, 1.0)), *(
                float((p.grad - names[n].grad).norm() / names[n].grad.norm().clamp_min(1e-6))
                for n, p in wrapped.named_parameters()))
            assert not bad
            for rule in rules:
                rule.step()
        evaluated = wrapped.eval().evaluate(shares[wrapped.get_status()["replica"]])
        far = max(far, abs(evaluated - whole_loss(alone.eval(), shares, learn=False)) / evaluated)
        print(f"GRID {stages} {replicas} {chunk} {tied}: worker {wrapped.pipe.transport.worker} far {far:.2e}", flush=True)


def on_from(sizes, folder, seed, save):
    """Runs 20 steps after a checkpoint, for each of `sizes` (stages, replicas). With `save`, the checkpoint is made at the
    first of them. All losses must equal those that the job of the checkpoint has written."""
    store = os.path.join(folder, "store")
    notes = os.path.join(folder, "losses.json")
    for turn, (stages, replicas) in enumerate(sizes):
        torch.manual_seed(seed + turn)
        wrapped = Varuna(Model(tied=True, blocks=7), default_map(stages, replicas), batch_of, 8, 1,
                         shared_weights=[("words.weight", "head.weight")])
        rule = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
        wrapped.set_optimizer(rule)
        if save and turn == 0:
            for step in range(3):
                one_step(wrapped, rule, seed, step)
            wrapped.checkpoint(store, shard=True)
        else:
            wrapped.load_checkpoint(store, 3)
        losses = [one_step(wrapped, rule, seed, step) for step in range(3, 23)]
        if save and turn == 0 and wrapped.pipe.transport.worker == 0:
            with open(notes, "w") as file:
                json.dump(losses, file)
        wrapped.pipe.state.agreed("noted")
        with open(notes) as file:
            known = json.load(file)
        far = max(abs(a - b) / b for a, b in zip(losses, known, strict=True))
        print(f"ON {stages} {replicas}: worker {wrapped.pipe.transport.worker} bits {losses == known} far {far:.2e}",
              flush=True)


def one_step(wrapped, rule, seed, step):
    """Trains on a batch of eight, of which each replica has its share. Returns the loss."""
    whole = batch_of(8, "cpu", torch.Generator().manual_seed(seed * 1000 + step))
    rows = wrapped.rows
    at = wrapped.get_status()["replica"] * rows
    loss, *_ = wrapped.step({k: v[at:at + rows] if isinstance(v, torch.Tensor) else v for k, v in whole.items()})
    rule.step()
    wrapped.zero_grad()
    return loss


def killed(folder, seed):
    """Ends worker 1 in the middle of its second checkpoint."""
    wrapped, _ = made(seed, False, 2, 1)
    wrapped.set_optimizer(torch.optim.AdamW(wrapped.parameters(), lr=0.01))
    store = os.path.join(folder, "killed")
    draw = torch.Generator().manual_seed(seed)
    save = torch.save

    def once(value, file):
        save(value, file)
        torch.save = lambda *_: os._exit(9)

    for _ in range(2):
        wrapped.step(batch_of(ROWS, "cpu", draw))
        wrapped.optimizer.step()
        if wrapped.get_status()["step"] == 2 and wrapped.pipe.transport.worker == 1:
            torch.save = once
        wrapped.checkpoint(store)
