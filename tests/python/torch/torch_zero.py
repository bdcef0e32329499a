"""Workers of zero_test.py: trainings whose optimizer states are sharded over the workers, compared with the same
trainings with all states on each worker.

torch_zero.py FOLDER CASE...: prints "PASSED <case>!" for each case on each worker."""

import copy
import math
import os
import sys
import traceback
from pathlib import Path

import torch
from torch import nn

import hetu.torch
import torch_random
from hetu import _hetu
from hetu.torch import owner_messages
from torch_plain import refuses
from torch_sharded import (
    MICROS,
    WIDTH,
    Training,
    adafactor,
    adagrad,
    adamw,
    change,
    compare,
    expect_same,
    odd,
    partly,
    plain,
    same,
    several,
    sgd,
    tied,
)

FOLDER = sys.argv[1] if len(sys.argv) > 1 else ""


def rules():
    """Compares optimizers with different states, clipped by several norms."""
    for rule, clip in ((adamw, 2.0), (sgd, math.inf), (adagrad, None), (adafactor, 1.0), (several, 2.0)):
        compare(rule.__name__, plain, rule, "1f1b", clip=clip, pipelines=PIPELINES)
    compare("float64", plain, adamw, "1f1b", clip=2.0, pipelines=PIPELINES, dtype=torch.float64)
    owner_messages.MESSAGE_BYTES = 600  # some parameters have their own message, and others need several messages
    for make, rule in ((plain, several), (odd, sgd), (odd, adamw)):
        compare("messages", make, rule, "1f1b", clip=2.0, pipelines=PIPELINES)
    owner_messages.MESSAGE_BYTES = 8 << 20


def gradients():
    """Compares parameters that are frozen, unfrozen, and without a gradient."""
    for rule in (adamw, sgd):
        compare("gradients", partly, rule, "zb-h1", steps=6, change=change, clip=2.0, pipelines=PIPELINES)


def drawn():
    """Compares random models: skips, statistics, words, tied tables, custom functions, frozen and unfrozen parameters."""
    for seed in range(1, 1 + int(os.environ.get("SEEDS", "4"))):
        make, change, words, is_tied, rows = torch_random.draw(seed, True)
        tie = {"tied": [("0.table.weight", f"{len(make()) - 1}.head.weight")]} if is_tied else {}
        for schedule, pipelines in (("1f1b", PIPELINES), ("zb-v", PIPELINES), ("chimera", _hetu.env()["workers"] // 2)):
            copies = {"pipelines": pipelines} if schedule != "chimera" else {"pipelines": pipelines // 2 or 1}
            if schedule == "chimera" and _hetu.env()["workers"] % 2:
                continue
            made = []
            for shard in (True, False):
                torch.manual_seed(seed)
                pieces = make()
                pipe = hetu.torch.Pipeline(pieces, torch_random.mean_of_rows if words else nn.MSELoss(), schedule, MICROS,
                                           shard_optimizer=shard, **copies, **tie)
                made.append((pieces, pipe, torch.optim.AdamW(pipe.parameters(), lr=0.01)))
            draw = torch.Generator().manual_seed(seed)
            for step in range(3):
                count = made[0][1].pipelines
                x, y = (torch_random.batches_of(words, rows)(draw, count) if words else
                        torch.randn(2, count, rows, torch_random.WIDTH, generator=draw))
                seen = []
                for pieces, pipe, rule in made:
                    change(step, pieces)
                    seen.append([pipe.step(x[pipe.pipeline].clone(), y[pipe.pipeline]), float(pipe.clip_grad_norm_(0.1))])
                    rule.step()
                where = f"seed {seed}, {schedule}, step {step}"
                assert seen[0] == seen[1], f"{where}: {seen}"
                for (name, a), (_, b) in zip(*(pipe.named_parameters() for _, pipe, _ in made), strict=True):
                    assert torch.equal(a, b), f"{where}: '{name}' differs"


def schedules():
    """Compares copies within a pipeline, two copies on one worker, and tied parameters."""
    workers = _hetu.env()["workers"]
    if workers == 1:
        compare("twice", plain, adamw, "gems", clip=2.0)
        model = Training(plain, lambda _: {}, "gems", True)
        rule = torch.optim.SGD(list(dict(model.pipe.named_parameters()).values()), lr=0.1)
        refuses(ValueError, rule.step, "this worker has 2 copies of '0.0.weight', but the optimizer has only some")
    if workers == 2:
        compare("twice pipelines", plain, several, "gems", clip=2.0, pipelines=2)
        compare("chimera", plain, adamw, "chimera", clip=2.0)
        compare("tied chimera", tied, adamw, "chimera", clip=2.0)
        compare("tied", tied, adamw, "1f1b", clip=2.0)
        compare("tied zb-v", tied, adamw, "zb-v", clip=2.0)
    if workers == 4:
        compare("tied pipelines", tied, adamw, "zb-v", clip=2.0, pipelines=2)
        compare("chimera pipelines", plain, sgd, "chimera", clip=2.0, pipelines=2)
        compare("four", plain, several, "1f1b", clip=2.0, pipelines=4)


def memory():
    """Checks that each worker keeps about its share of the states: no copy exceeds it by more than one parameter."""
    sharded, whole = compare("memory", plain, adamw, "1f1b", pipelines=PIPELINES)
    largest = 2 * max(p.numel() for p in whole.pipe.parameters())
    share = whole.elements() / PIPELINES
    assert whole.elements() == 2 * sum(p.numel() for p in whole.pipe.parameters())
    assert abs(sharded.elements() - share) <= largest, (sharded.elements(), share)
    (total,) = sharded.pipe.sum([sharded.elements()])
    (all_of_them,) = sharded.pipe.sum([whole.elements()])
    assert total == all_of_them / PIPELINES, (total, all_of_them)
    print(f"MEMORY worker {sharded.pipe.transport.worker}: {sharded.elements()} of {whole.elements()} elements", flush=True)


def balance():
    """Checks that equal layers are owned evenly, and that the few trained layers are, where most are frozen."""
    def layers():
        made = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(8)]
        for piece in made[:4]:
            piece.requires_grad_(False)
        return made

    training = Training(layers, adamw, "1f1b", True, pipelines=PIPELINES)
    training.step(0)
    trained = 2 * 4 * WIDTH * WIDTH // PIPELINES
    assert training.elements() in (trained, 0), (training.elements(), trained)  # 0: a stage of frozen layers
    (total,) = training.pipe.sum([training.elements()])
    assert total == 2 * 4 * WIDTH * WIDTH


def loops():
    """Compares accumulated gradients, a closure, a schedule of rates, averages of weights, and clipped values."""
    sharded, whole = (Training(plain, adamw, "1f1b", shard, pipelines=PIPELINES) for shard in (True, False))
    seen = []
    for one in (sharded, whole):
        (rule,) = one.rules.values()
        rates = torch.optim.lr_scheduler.OneCycleLR(rule, 0.1, total_steps=5)
        ema = hetu.torch.AveragedModel(one.pipe, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        out = []
        for update in range(3):
            for part in range(3):
                loss = one.pipe.step(*one.batch(3 * update + part), accumulate=part > 0, factor=1 / 3)
                out.append(loss)
            one.pipe.clip_grad_value_(0.01)
            rule.step()
            rates.step()
            ema.update_parameters()
        out.append(rule.step(lambda one=one: one.pipe.step(*one.batch(9))))
        with ema.applied():
            out.append(one.pipe.evaluate(*one.batch(0)))
        seen.append(out)
    assert seen[0] == seen[1], seen
    expect_same("loops", sharded, whole)


def scaled():
    """Compares float16 with a scale. An infinite gradient in one shard counts for all, and all skip the update."""
    sharded, whole = (Training(plain, sgd, "1f1b", shard, pipelines=PIPELINES) for shard in (True, False))
    seen = []
    for one in (sharded, whole):
        scaler = hetu.torch.GradScaler(one.pipe, init_scale=2.0**20, growth_interval=3)
        out = []
        for step in range(6):
            with torch.autocast("cpu", torch.float16):
                out.append(one.pipe.step(*one.batch(step), scaler))
            (rule,) = one.rules.values()
            first = next(one.pipe.parameters())
            if step == 3 and first.grad is not None:
                first.grad.fill_(math.inf)
            scaler.unscale_(rule)
            out.append(float(one.pipe.clip_grad_norm_(0.5)))
            scaler.step(rule)
            scaler.update()
            out.append(scaler.get_scale())
        seen.append(out)
    assert str(seen[0]) == str(seen[1]), seen
    scales = seen[0][2::3]
    assert scales[3] == scales[2] / 2 and len(set(scales)) < len(scales), f"none was skipped, or none was made: {scales}"
    expect_same("scaled", sharded, whole)


def states():
    """Checks that state_dict() of an optimizer equals that of a training without shards, before and after a checkpoint. A
    training can continue from either."""
    for rule in (adamw, several):
        sharded, whole = compare("states", plain, rule, "1f1b", pipelines=PIPELINES)
        for name in sharded.rules:
            found, expected = sharded.rules[name].state_dict(), whole.rules[name].state_dict()
            assert found["param_groups"] == expected["param_groups"]
            assert list(found["state"]) == list(expected["state"]), (list(found["state"]), list(expected["state"]))
            for number, state in expected["state"].items():
                assert all(same(found["state"][number][key], value) for key, value in state.items()), (name, number)
            held = {key: copy.deepcopy(one.rules[name].state_dict()) for key, one in (("s", sharded), ("w", whole))}
            sharded.rules[name].load_state_dict(held["w"])  # each loads the other's state
            whole.rules[name].load_state_dict(held["s"])
        assert sharded.step(7) == whole.step(7)
        expect_same("states", sharded, whole)
        assert sharded.elements() < whole.elements(), "states of other owners were kept"


def checkpoints():
    """Checks that a checkpoint saved with shards loads without them, and the reverse. Each file has the same tensors."""
    for at, rule in enumerate((adamw, adagrad, several)):
        sharded, whole = compare("checkpoints", tied if rule is adamw else plain, rule, "1f1b", pipelines=PIPELINES)
        places = [Path(FOLDER, f"{kind}{at}") for kind in ("sharded", "whole")]
        sharded.pipe.save(places[0], sharded.rules)
        whole.pipe.save(places[1], whole.rules)
        saved, kept = whole.states(), [tensor.clone() for tensor in whole.pipe.state_dict().values()]
        others = [Training(tied if rule is adamw else plain, rule, "1f1b", shard, pipelines=PIPELINES)
                  for shard in (True, False)]
        for one, place in zip(others, reversed(places), strict=True):
            one.step(50)
            assert not one.pipe.load(place, one.rules)
            expect_same("loaded", one, whole)
        for name in whole.rules:
            found, expected = others[0].rules[name].state_dict(), whole.rules[name].state_dict()
            assert list(found["state"]) == list(expected["state"])  # complete before the first step
        expected = whole.step(8)
        for one in (sharded, *others):
            assert one.step(8) == expected
            expect_same("after a checkpoint", one, whole)
        if at == 0:
            again = Training(tied, rule, "zb-v", True, pipelines=2)  # fewer pipelines, where there are four workers
            once = Training(tied, rule, "1f1b", False)
            for one in (again, once):
                one.pipe.load(places[0], one.rules)
                found = one.states()
                assert set(found) == set(saved) and all(same(found[key], value) for key, value in saved.items())
                assert all(torch.equal(a, b) for a, b in zip(one.pipe.state_dict().values(), kept, strict=True))


def dcp():
    """Checks the same with torch.distributed.checkpoint."""
    sharded, whole = compare("dcp", plain, adamw, "1f1b", pipelines=PIPELINES)
    worker, workers = whole.pipe.transport.worker, whole.pipe.transport.workers
    torch.distributed.init_process_group("gloo", init_method=f"file://{FOLDER}/group", rank=worker, world_size=workers)
    for one, other in ((sharded, False), (whole, True)):
        place = f"{FOLDER}/dcp{other}"
        hetu.torch.save_dcp(one.pipe, place, one.rules["rule"])
        fresh = Training(plain, adamw, "1f1b", other, pipelines=PIPELINES)
        assert not hetu.torch.load_dcp(fresh.pipe, place, fresh.rules["rule"])
        expect_same("dcp", fresh, whole)
        after = Training(plain, adamw, "1f1b", other, pipelines=PIPELINES)
        hetu.torch.load_dcp(after.pipe, place, after.rules["rule"])
        assert after.step(9) == fresh.step(9)
    torch.distributed.destroy_process_group()


def bad():
    """Checks that wrong uses give one error each, on all workers."""
    def made(**options):
        return lambda: hetu.torch.Pipeline(plain(), nn.MSELoss(), "1f1b", MICROS, shard_optimizer=True, **options)

    refuses(ValueError, made(), "shard_optimizer: there is one copy of each stage")
    refuses(ValueError, made(pipelines=2, averaging="preduce"), "pipelines that average weights update them separately")
    one = Training(plain, adamw, "1f1b", True, pipelines=2)
    worker = one.pipe.transport.worker

    def lbfgs():
        rule = torch.optim.LBFGS(one.pipe.parameters())
        rule.step(lambda: torch.tensor(one.pipe.step(*one.batch(0))))

    refuses(ValueError, lbfgs, "LBFGS combines the gradients of all of its parameters")

    class Global(torch.optim.SGD):
        """Keeps a number for all parameters."""

        def step(self, closure=None):
            self.state["all"]["count"] = 1
            super().step(closure)

    one.pipe.step(*one.batch(0))
    refuses(ValueError, Global(one.pipe.parameters()).step, "Global keeps a state for 'all', which is not one of its")
    rule = torch.optim.SGD(one.pipe.parameters(), lr=0.1 + worker)
    refuses(ValueError, rule.step, "the optimizer of worker 1 has different options than that of worker 0")
    parameters = list(one.pipe.parameters())
    rule = torch.optim.SGD(parameters[:-1] if worker else parameters, lr=0.1)
    refuses(ValueError, rule.step, "the optimizer of worker 1 has different parameters or groups than that of worker 0")

    def by_hand(before):
        """Runs a script that changes weights itself."""
        one = Training(plain, adamw, "1f1b", True, pipelines=2)
        one.step(0)
        one.pipe.step(*one.batch(1))
        with torch.no_grad():
            for parameter in one.pipe.parameters():
                if parameter.grad is not None:
                    parameter.data -= 0.1 * parameter.grad
        before(one)

    refuses(ValueError, lambda: by_hand(lambda one: one.pipe.step(*one.batch(2))), "different values on worker 1 than on")
    refuses(ValueError, lambda: by_hand(lambda one: one.pipe.save(FOLDER + "/no")), "sends weights to the other copies")
    refuses(ValueError, lambda: by_hand(lambda one: one.pipe.state_dict()), "or in the same way on all workers")
    one = Training(plain, adamw, "1f1b", True, pipelines=2)
    for step in range(3):  # unused gradients are allowed
        one.pipe.step(*one.batch(step))
    assert one.pipe.state_dict()
    one.rules["rule"].step()
    # Lambdas are used because an error names the line of the call.
    call = (lambda: one.rules["rule"].step()) if worker else lambda: one.pipe.step(*one.batch(0))
    refuses(RuntimeError, call, "worker 0 called Pipeline.step() in torch_zero.py")
    refuses(RuntimeError, call, "and worker 1 called AdamW.step() in torch_zero.py")
    model = Training(plain, adamw, "1f1b", True, pipelines=2)
    model.pieces[0].requires_grad_(worker == 0)
    refuses(ValueError, lambda: model.pipe.save(FOLDER + "/no", model.rules), "has requires_grad=True on worker 0 and False")


PIPELINES = 2


def main():
    torch.set_num_threads(1)
    global PIPELINES
    for case in sys.argv[2:]:
        name, _, pipelines = case.partition("/")
        PIPELINES = int(pipelines or 2)
        try:
            globals()[name]()
        except Exception:
            print(f"FAILED {case}: {traceback.format_exc()}", flush=True)
            raise
        print(f"PASSED {case}!", flush=True)


if __name__ == "__main__":
    main()
