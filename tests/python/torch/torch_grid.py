"""Cases of torch_worker.py: every method that flushes, on models of transformers and torchvision.

Models have dropout, tied heads, clipping, AdamW, buffers and a smaller last micro-batch. Cases run with and without
recomputation, in one pipeline and in two. The reference is one process over the same pieces with the same seeds.
torch_models shows that the pieces equal the model."""

import torch
from torch import nn
from torch.utils._pytree import tree_map

import hetu.torch
import hetu.torch.blocks
import torch_models
from hetu.torch.blocks import pieces_of

STEPS, EACH = 5, 3
METHODS = ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "gems", "chimera", "hanayo", "zb-h1", "zb-h2", "zb-v",
           "v-half", "v-min", "interleaved-zb", "dualpipe", "dualpipev", "varuna", "zb-1p", "zb-2p", "auto")
MODELS = ("bert masked", "gpt2", "llama masked", "t5 masked", "vit", "resnet18")
DESCENDING = ("looped-bfs",)  # adds gradients from the last micro-batch to the first
OVER_COPIES = ("gems", "chimera", "dualpipe")  # the two copies of a stage sum their gradients
RECOMPUTING = ("varuna",)  # recomputes in any case
SHARING = ("bert", "gpt2", "t5")  # parameters tied over stages, or values that several stages read
DEEP = {"t5 masked": 3}  # blocks of each half; others have six, so that four workers with two stages each have eight pieces
_plain = {}  # results of one process, by all parameters that they depend on


def cases(stages, pipelines, every):
    """Returns the names of the cases of one job. Without `every`, each method has one model, which differs between jobs."""
    end = f"{stages} {pipelines}"
    if every:
        return [f"grid {model} by {method}{again} {end}" for method in METHODS for model in MODELS
                for again in ("", " recomputed") if not (again and method in RECOMPUTING)]
    found = []
    for turn, method in enumerate(METHODS, stages // 2 + 2 * pipelines):
        again = " recomputed" if (turn + turn // len(MODELS)) % 2 and method not in RECOMPUTING else ""
        found.append(f"grid {MODELS[turn % len(MODELS)]} by {method}{again} {end}")
    return found


def exact(case):
    """Returns true if results have the same bits as one process: sums are in the same order, there are no copies, and no
    value is read on several stages."""
    model, method, _, pipelines = _parts(case)
    return pipelines == 1 and method not in OVER_COPIES + DESCENDING and not model.startswith(SHARING)


def _parts(case):
    model, _, rest = case.removeprefix("grid ").partition(" by ")
    words = rest.split()
    return model, words[0], "recomputed" in words, int(words[-1])


def _made(model, dtype, seed):
    torch.manual_seed(seed)
    return torch_models.MODELS[model][0](DEEP.get(model, 6), 0.1).to(dtype)


def _batches(model, rows, pipelines, dtype, seed):
    """Returns inputs and labels of each pipeline, for each step."""
    draw = torch.Generator().manual_seed(seed)
    _, _, inputs_of, shape = torch_models.MODELS[model]

    def inputs():
        return tree_map(lambda t: t.to(dtype) if t.is_floating_point() else t, inputs_of(draw, rows))

    return [[(inputs(), torch.randint(0, torch_models.WORDS, (rows, *shape), generator=draw))
             for _ in range(pipelines)] for _ in range(STEPS)]


def _part(inputs, at):
    if isinstance(inputs, dict):
        return {name: value[at:at + EACH] for name, value in inputs.items()}
    return inputs[at:at + EACH]


def _reference(model, batches, rows, dtype, seed):
    """Returns (loss and norm of each step, tensors by name) of one process."""
    key = model, len(batches[0]), rows, dtype
    if key in _plain:
        return _plain[key]
    whole = _made(model, dtype, seed).train()
    pieces = list(pieces_of(hetu.torch.blocks.split(whole)))
    rule = torch.optim.AdamW(whole.parameters(), lr=1e-3)
    told = []
    for step, shares in enumerate(batches):
        rule.zero_grad()
        total, micro = 0.0, 0
        for inputs, labels in shares:
            for at in range(0, rows, EACH):
                value, y = _part(inputs, at), labels[at:at + EACH]
                for number, piece in enumerate(pieces):
                    torch.manual_seed(hetu.torch.seed_of(0, step, micro, number))
                    value = piece(value)
                part = torch_models.loss_of(value, y) * (len(y) / (rows * len(shares)))
                part.backward()
                total, micro = total + part.item(), micro + 1
        norm = float(nn.utils.clip_grad_norm_(whole.parameters(), 0.2))
        assert norm > 0.2, "no clipping was tried"
        rule.step()
        told.append((total, norm))
    state = dict(whole.named_parameters(remove_duplicate=False)) | dict(whole.named_buffers())
    _plain[key] = told, {name: tensor.detach() for name, tensor in state.items()}
    return _plain[key]


def run(case, seed):
    """Runs one case, and prints the differences of this worker's losses, norms, parameters and buffers."""
    model, method, again, pipelines = _parts(case)
    stages = int(case.split()[-2])
    micros = 2 * stages if method.startswith("dualpipe") else 4  # the number that dualpipe requires
    rows = EACH * micros - 1
    # In float32, AdamW and normalization amplify the effect of another order of sums. float64 shows that no term is wrong.
    dtype = torch.float32 if exact(case) else torch.float64
    batches = _batches(model, rows, pipelines, dtype, seed)
    pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(_made(model, dtype, seed)), torch_models.loss_of, method, micros,
                               pipelines=pipelines, tied=torch_models.MODELS[model][1],
                               **({"with_recompute": True} if again else {}))
    rule = torch.optim.AdamW(pipe.parameters(), lr=1e-3)
    told = []
    for shares in batches:
        loss = pipe.step(*shares[pipe.pipeline])
        told.append((loss, float(pipe.clip_grad_norm_(0.2))))
        rule.step()
    plain, names = _reference(model, batches, rows, dtype, seed)
    state = {name: p.detach() for name, p in pipe.named_parameters()}
    if pipelines == 1 and method not in OVER_COPIES:  # each copy has its own buffers
        state |= {pipe.pieces.names[id(b)]: b for stage in pipe.own.values() for b in stage.buffers()}
    apart = max(float((t.double() - names[n].double()).norm() / names[n].double().norm().clamp_min(1e-3))
                for n, t in state.items())
    far = max(abs(a - b) / abs(b) for one, other in zip(told, plain, strict=True) for a, b in zip(one, other, strict=True))
    bits = told == plain and all(torch.equal(t, names[n]) for n, t in state.items())
    print(f"CASE {case}: worker {pipe.transport.worker} bits {bits} weights {apart:.2e} numbers {far:.2e}", flush=True)
