"""Cases of torch_worker.py with models that are built without memory. Each worker allocates its own stages only. Values are
the same under every cut, and come from a checkpoint where there is one."""

import resource
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

import hetu.torch
from hetu.torch import blocks

WIDTH, WORDS = 16, 24


def tied():
    """Returns a model whose embedding is tied to the head, and whose norm has buffers with memory."""
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH),
                          nn.Linear(WIDTH, WIDTH), nn.MultiheadAttention(WIDTH, 2), nn.Linear(WIDTH, WORDS, bias=False))
    model[5].weight = model[0].weight
    return model


def gpt():
    """Returns a GPT-2 of transformers without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=3, n_head=2, n_positions=8, resid_pdrop=0.0,
                                      embd_pdrop=0.0, attn_pdrop=0.0))


def loss_of(logits, labels):
    """Returns the cross entropy of words."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def held(pipe):
    """Checks that own parameters have memory, and that all others have none."""
    own = {id(p) for p in pipe.parameters()}
    assert own and not any(p.is_meta for p in pipe.parameters())
    assert all(p.is_meta for stage in pipe.stages for p in stage.parameters() if id(p) not in own)


def cuts(seed):
    """Checks that values are the same under two cuts, and on both copies of the tied parameter."""
    states = []
    for schedule, first in (("1f1b", [0, 2]), ("zb-v", [0, 1, 3, 5])):
        torch.manual_seed(seed + len(states))  # the values don't depend on this seed
        with hetu.torch.empty():
            model = tied()
        pipe = hetu.torch.Pipeline(model, loss_of, schedule, 2, first_pieces=first, tied=[("0.weight", "5.weight")],
                                   seed=seed)
        held(pipe)
        assert not any(p.isnan().any() for p in pipe.parameters())
        (tie,) = pipe.ties
        states.append(pipe.state_dict())
        for copy in tie.copies:
            assert copy.is_meta or torch.equal(copy, states[-1]["0.weight"])
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))
    assert float(states[0]["1.weight"].std()) > 0.05 and not torch.equal(states[0]["1.weight"], states[0]["3.weight"])
    print("EMPTY cuts", flush=True)


def pretrained(folder, seed):
    """Reads each worker's stages from the files of save_pretrained(), and compares a step with the whole model."""
    place = Path(folder, "gpt")
    torch.manual_seed(seed)
    whole = gpt().train()
    first = hetu.torch.Pipeline([nn.Linear(1, 1), nn.Linear(1, 1)], nn.MSELoss(), "1f1b", 2)
    if first.transport.worker == 0:
        whole.save_pretrained(place, max_shard_size="20KB")
    first.state.agreed("written")
    pipe = hetu.torch.Pipeline(blocks.from_pretrained(place), loss_of, "zb-h1", 2,
                               tied=[("transformer.wte.weight", "lm_head.weight")])
    held(pipe)
    ids = torch.randint(0, WORDS, (4, 8), generator=torch.Generator().manual_seed(seed))
    loss = pipe.step({"input_ids": ids}, ids)
    plain = sum(loss_of(whole(input_ids=half).logits, half) / 2 for half in ids.split(2))
    plain.backward()
    names = dict(whole.named_parameters(remove_duplicate=False))
    assert abs(loss - float(plain)) < 1e-6 * float(plain), (loss, float(plain))
    for name, parameter in pipe.named_parameters():
        assert float((parameter.grad - names[name].grad).norm()) <= 1e-6 * float(names[name].grad.norm()), name
    print("EMPTY pretrained", flush=True)


def memory():
    """Checks that this worker allocates its half of 24 matrices of 9 MiB each (216 MiB), and nothing else."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with hetu.torch.empty():
        model = nn.Sequential(*[nn.Linear(1536, 1536) for _ in range(24)])
    pipe = hetu.torch.Pipeline(model, nn.MSELoss(), "1f1b", 2)
    held(pipe)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert 80 < grown < 140, f"{grown:.0f} MiB"
    print("EMPTY memory", flush=True)


def run(folder, seed):
    """Runs all cases."""
    cuts(seed)
    memory()
    if find_spec("transformers"):
        pretrained(folder, seed)
    else:
        print("EMPTY pretrained: not tried, transformers is not there", flush=True)
