"""A worker of devices_test.py: Pipelines on the simulated accelerator, compared with plain PyTorch on the CPU.

torch_device_worker.py FOLDER CASE...: prints one line per case, "CASE <case>: worker <n> <result>"."""

import copy
import math
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch_device"))
import far

import hetu.torch
import hetu.torch.blocks
import torch_models
import torch_sharded
import torch_varuna
from hetu import _hetu
from hetu.torch.device import StageDevice
from hetu.varuna import Varuna

ROWS, MICROS, STEPS, WIDTH = 22, 4, 3, 12
SUMMED = ("chimera", "dualpipe", "gems")  # schedules with two copies of each stage in a pipeline


class Residual(nn.Module):
    """A piece with dropout, and with a tensor that it creates on its input's device."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a tensor of the same shape."""
        scale = torch.full((WIDTH,), 0.5, device=x.device)
        return x + nn.functional.dropout(self.second(torch.tanh(self.first(x))) * scale, 0.2, self.training)


class Fork(nn.Module):
    """Returns several values. A message then holds several tensors, and one of them has no gradient."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Returns a dict."""
        return {"x": self.linear(x), "skip": x * 2, "mask": x[:, :1] > 0}


class Join(nn.Module):
    """Takes the output of Fork."""

    def forward(self, v):
        """Returns one tensor."""
        return v["x"].masked_fill(v["mask"], 0.0) + v["skip"]


def residual():
    """Returns a model of eight pieces."""
    return nn.Sequential(*[Residual() for _ in range(8)])


def norms():
    """Returns a model of pieces with buffers."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()) for _ in range(4)])


def forked():
    """Returns a model whose pieces pass several tensors on."""
    return nn.Sequential(Residual(), Fork(), Join(), Residual())


def tied():
    """Returns a model whose first and last piece share a weight."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), Residual(), Residual(), nn.Linear(WIDTH, WIDTH, bias=False))
    model[3].weight = model[0].weight
    return model


MODELS = {"residual": residual, "norms": norms, "forked": forked, "tied": tied}


def batches(pipelines):
    """Returns inputs and targets of each step and pipeline."""
    draw = torch.Generator().manual_seed(3)
    return [[(torch.randn(ROWS, WIDTH, generator=draw), torch.randn(ROWS, WIDTH, generator=draw)) for _ in range(pipelines)]
            for _ in range(STEPS)]


def plain(model, pipelines):
    """Returns the losses, norms and state of plain PyTorch on the CPU, in one process and with the same micro-batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numbers = []
    for step, shares in enumerate(batches(pipelines)):
        optimizer.zero_grad()
        total, micro = 0.0, 0
        for x, y in shares:
            for a, b in zip(x.split(6), y.split(6), strict=True):
                for number, piece in enumerate(model):
                    torch.manual_seed(hetu.torch.seed_of(0, step, micro, number))
                    a = piece(a)
                loss = nn.functional.mse_loss(a, b) * (len(b) / (ROWS * pipelines))
                loss.backward()
                total, micro = total + loss.item(), micro + 1
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        numbers.append((total, norm.item()))
    return numbers, model.state_dict()


def made(name):
    """Returns the model of a case, the same on all workers."""
    torch.manual_seed(5)
    return MODELS[name]()


def train(case, device="far"):
    """Runs "MODEL SCHEDULE PIPELINES" and prints the differences of losses, norms and weights from plain PyTorch."""
    name, schedule, pipelines = case.split()
    options = {"tied": [("0.weight", "3.weight")]} if name == "tied" else {}
    pipe = hetu.torch.Pipeline(made(name), nn.MSELoss(), schedule, MICROS, pipelines=int(pipelines), device=device,
                               **options)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    numbers = []
    for shares in batches(pipe.pipelines):
        loss = pipe.step(*shares[pipe.pipeline])
        numbers.append((loss, pipe.clip_grad_norm_(0.5).item()))
        optimizer.step()
    expected, state = plain(made(name), pipe.pipelines)
    found = pipe.state_dict()
    tensors = [*pipe.parameters(), *(p.grad for p in pipe.parameters()),
               *(b for stage in pipe.own.values() for b in stage.buffers()),
               *(v for p in pipe.parameters() for k, v in optimizer.state[p].items() if k != "step")]
    assert pipe.device.type == "far" and all(t.device == pipe.device for t in tensors), [t.device for t in tensors]
    held = sum(t.numel() * t.element_size() for t in tensors)
    assert torch.far.memory_allocated(pipe.device.index) >= held > 0
    numbers_off = max(abs(a - b) / abs(b) for one, other in zip(numbers, expected, strict=True)
                      for a, b in zip(one, other, strict=True))
    own_buffers = schedule in SUMMED or pipe.pipelines > 1  # copies of a stage don't share running statistics
    apart = max(float((found[n] - t).double().norm() / t.double().norm().clamp_min(1e-3)) for n, t in state.items()
                if not (own_buffers and "running" in n))
    print(f"CASE {case}: worker {pipe.transport.worker} on {pipe.device} numbers {numbers_off:.2e} weights {apart:.2e}",
          flush=True)
    return pipe, optimizer


def forgets_to_wait(case):
    """Runs the same training without StageDevice's waits, which must not go unnoticed."""
    wait = StageDevice.synchronize
    StageDevice.synchronize = lambda self: None
    try:
        train(case)
    except Exception as error:
        print(f"FORGOT: {error}", flush=True)
    finally:
        StageDevice.synchronize = wait


def mixed(case):
    """Compares autocast with a GradScaler, and a gradient that overflows, with plain PyTorch on the device. Then a
    checkpoint of the device is resumed on the CPU, and the reverse."""
    schedule, dtype, folder = case.split()
    pipe = hetu.torch.Pipeline(made("residual"), nn.MSELoss(), schedule, MICROS, device="far")
    whole = made("residual").to(pipe.device)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in (pipe, whole)]
    scalers = [hetu.torch.GradScaler(pipe, init_scale=1024.0), torch.amp.GradScaler("far", init_scale=1024.0)]
    same = []
    for step, ((x, y),) in enumerate(batches(1)):
        y = y * 1e30 if step == 1 else y  # float16 gradients can't hold this value
        with torch.autocast("far", getattr(torch, dtype)):
            found = pipe.step(x, y, scalers[0])
        expected = 0.0
        optimizers[1].zero_grad()
        for micro, (a, b) in enumerate(zip(x.to(pipe.device).split(6), y.to(pipe.device).split(6), strict=True)):
            with torch.autocast("far", getattr(torch, dtype)):
                for number, piece in enumerate(whole):
                    torch.far.manual_seed(hetu.torch.seed_of(0, step, micro, number))
                    a = piece(a)
                loss = nn.functional.mse_loss(a, b) * (len(b) / ROWS)
            scalers[1].scale(loss).backward()
            expected += loss.item()
        for optimizer, scaler in zip(optimizers, scalers, strict=True):
            scaler.step(optimizer)
            scaler.update()
        same.append((found == expected or not math.isfinite(expected), scalers[0].get_scale() == scalers[1].get_scale()))
    state = whole.state_dict()
    same.append(all(torch.equal(p, state[name]) for name, p in pipe.named_parameters()))
    print(f"MIXED {schedule} {dtype}: worker {pipe.transport.worker} {same}", flush=True)
    pipe.save(f"{folder}/{dtype}", optimizers[0], scaler=scalers[0])
    x, y = batches(1)[0][0]
    numbers = []
    for device in ("cpu", "far"):
        other = hetu.torch.Pipeline(made("residual"), nn.MSELoss(), "zb-v", MICROS, device=device)
        optimizer, scaler = torch.optim.AdamW(other.parameters(), lr=0.01), hetu.torch.GradScaler(other)
        other.load(f"{folder}/{dtype}", optimizer, scaler=scaler)
        assert scaler.get_scale() == scalers[0].get_scale()
        assert all(s["exp_avg"].device == other.device and s["step"].is_cpu for s in optimizer.state.values())
        numbers.append(other.step(x, y))
        optimizer.step()
        other.save(f"{folder}/{dtype}-{device}", optimizer)
    for device in ("cpu", "far"):
        other.load(f"{folder}/{dtype}-{device}", optimizer)
        numbers.append(other.evaluate(x, y))
    assert numbers[0] == numbers[1] and numbers[2] == numbers[3], numbers
    print(f"LOADED: worker {pipe.transport.worker}", flush=True)


def keeps_generator(case):
    """Checks that a step leaves the generators of the CPU and of the device unchanged, and that evaluate() equals the CPU's.
    """
    pipe, _ = train(case)
    x, y = batches(1)[0][0]
    before = torch.get_rng_state(), torch.far.get_rng_state()
    pipe.step(x.to(pipe.device), y)
    assert torch.equal(before[0], torch.get_rng_state()) and torch.equal(before[1], torch.far.get_rng_state())
    whole = made(case.split()[0]).eval()
    whole.load_state_dict(pipe.state_dict())
    with torch.no_grad():
        expected = nn.functional.mse_loss(whole(x), y).item()
    found = pipe.evaluate(x, y)
    assert abs(found - expected) < 1e-6, (found, expected)
    print(f"KEPT: worker {pipe.transport.worker}", flush=True)


def traced(case):
    """Cuts by times on the device, and writes a trace. Its instructions follow each other and last as long as the device
    works."""
    name, folder = case.split()
    model = made(name)
    x, y = batches(1)[0][0]
    first = hetu.torch.cut_by_time(model, nn.MSELoss(), x, y, 2, device="far")
    assert len(first) == 2 and first[0] == 0 and all(p.device.type == "cpu" for p in model.parameters())
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "zb-h1", MICROS, first_pieces=first, device="far")
    pipe.step(x, y)
    pipe.record()
    pipe.step(x, y)
    pipe.write_trace(f"{folder}/trace.json")
    print(f"TRACED: worker {pipe.transport.worker}", flush=True)


def varuna(folder):
    """Trains through Varuna's names, with the local rank as the device. A checkpoint is resumed on the CPU, with the
    optimizer's states."""
    rank = int(_hetu.env()["worker"])
    torch.manual_seed(1)
    alone = torch_varuna.Model(tied=False)

    def wrapped(device):
        model = Varuna(copy.deepcopy(alone), "0;1;", torch_varuna.batch_of, torch_varuna.ROWS, torch_varuna.CHUNK,
                       device=device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model.set_optimizer(optimizer)
        return model, optimizer

    try:
        wrapped("cuda")
    except ValueError as error:
        assert str(error) == "device='cuda': this machine has 2 devices of type 'far', and 'cpu'", str(error)
    else:
        raise AssertionError("a device that is not there was taken")
    one, rule = wrapped(rank)
    expected = torch.optim.AdamW(alone.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(2)
    for step in range(3):
        batch = torch_varuna.batch_of(torch_varuna.ROWS, "cpu", draw)
        loss = alone(**batch)[0]
        expected.zero_grad()
        loss.backward()
        expected.step()
        found, overflow, _ = one.step({k: v.to(f"far:{rank}") if torch.is_tensor(v) else v for k, v in batch.items()})
        rule.step()
        assert not overflow and abs(found - loss.item()) < 1e-5 * loss.item(), (step, found, loss.item())
    one.checkpoint(folder)
    batch = torch_varuna.batch_of(torch_varuna.ROWS, "cpu", draw)
    numbers = []
    for device in (None, rank):
        again, second = wrapped(device)
        again.load_checkpoint(folder, 3)
        assert again.pipe.device == (torch.device("cpu") if device is None else torch.device("far", rank))
        assert all(state["exp_avg"].device == again.pipe.device for state in second.state.values())
        again.step(batch)
        second.step()
        numbers.append(again.evaluate(batch))
    assert abs(numbers[0] - numbers[1]) < 1e-5 * numbers[0], numbers
    try:
        one.to(1 - rank)
    except ValueError as error:
        assert f"this rank computes on far:{rank}" in str(error)
        print(f"VARUNA: worker {rank}", flush=True)
    one.to(rank), one.to("far")


def dcp(folder):
    """Moves torch.distributed.checkpoint files from a device to the CPU and back."""
    pipe, optimizer = train("residual 1f1b 1")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=pipe.transport.worker,
                                         world_size=pipe.transport.workers)
    hetu.torch.save_dcp(pipe, f"{folder}/dcp", optimizer)
    x, y = batches(1)[0][0]
    numbers = []
    for device in ("cpu", "far"):
        other = hetu.torch.Pipeline(made("residual"), nn.MSELoss(), "zb-v", MICROS, device=device)
        second = torch.optim.AdamW(other.parameters(), lr=0.01)
        hetu.torch.load_dcp(other, f"{folder}/dcp", second)
        assert all(state["exp_avg"].device == other.device for state in second.state.values())
        numbers.append(other.step(x, y))
        second.step()
        numbers.append(other.evaluate(x, y))
    assert numbers[:2] == numbers[2:], numbers
    torch.distributed.destroy_process_group()
    print(f"DCP: worker {pipe.transport.worker}", flush=True)


def known_model(name):
    """Compares a model of transformers or torchvision on the device with itself on the CPU: losses and norms of two steps.
    """
    make, ties, inputs_of, shape = torch_models.MODELS[name]
    numbers = []
    for device in ("cpu", "far"):
        torch.manual_seed(1)
        pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(make(4, 0.1)), torch_models.loss_of, "1f1b", MICROS, tied=ties,
                                   device=device)
        optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-3)
        draw = torch.Generator().manual_seed(3)
        for _ in range(2):
            inputs, labels = inputs_of(draw, 8), torch.randint(0, torch_models.WORDS, (8, *shape), generator=draw)
            numbers += [pipe.step(inputs, labels), pipe.clip_grad_norm_(0.2).item()]
            optimizer.step()
    apart = max(abs(a - b) / abs(b) for a, b in zip(numbers[4:], numbers[:4], strict=True))
    print(f"MODEL {name}: worker {pipe.transport.worker} apart {apart:.1e}", flush=True)


def refused():
    """Makes mistakes on one of two workers. Every worker gets the error."""
    worker = int(_hetu.env()["worker"])
    x = torch.ones(ROWS, WIDTH)
    cases = [
        (lambda: hetu.torch.Pipeline(residual(), nn.MSELoss(), device="far" if worker else "cpu").step(x, x),
         "worker 0 computes on cpu and worker 1 on far:1"),
        (lambda: hetu.torch.Pipeline(residual(), nn.MSELoss(), device="far").step(x.to(f"far:{1 - worker}"), x),
         f"inputs: a tensor is on far:{1 - worker}, and this worker's stages are on far:{worker}"),
    ]
    for call, message in cases:
        try:
            call()
        except ValueError as error:
            assert message in str(error) and "\n" not in str(error), str(error)
            print(f"REFUSED: {message}", flush=True)
        else:
            raise AssertionError(f"nothing said '{message}'")


def main():
    """Runs the cases on the command line."""
    torch.set_num_threads(1)
    far.load()
    _, *cases = sys.argv[1:]
    for case in cases:
        kind, _, rest = case.partition(": ")
        if kind == "forgets":
            forgets_to_wait(rest)
        elif kind == "keeps":
            keeps_generator(rest)
        elif kind == "traced":
            traced(rest)
        elif kind == "varuna":
            varuna(rest)
        elif kind == "dcp":
            dcp(rest)
        elif kind == "mixed":
            mixed(rest)
        elif kind == "model":
            known_model(rest)
        elif kind == "shards":
            torch_sharded.compare(case, torch_sharded.plain, torch_sharded.several, rest, clip=2.0, device="far",
                               pipelines=1 if rest in SUMMED else 2)
            print(f"SHARDS: {rest}", flush=True)
        elif kind == "refused":
            refused()
        else:
            train(case)


if __name__ == "__main__":
    main()
