"""Cases of torch_worker.py with models of transformers and torchvision, untouched, beside the pieces that
blocks.split makes."""

import torch
from torch import nn

import hetu.torch
import hetu.torch.blocks

ROWS, EACH, STEPS, WORDS = 11, 3, 3, 64  # the last micro-batch has 2
SEQUENCE = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
NO_DROP = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # the whole draws in an order of its own


def _bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**SEQUENCE, intermediate_size=48, max_position_embeddings=16, **NO_DROP))


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=3, n_head=2, n_positions=16, resid_pdrop=0.0,
                                      embd_pdrop=0.0, attn_pdrop=0.0))


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SEQUENCE, num_key_value_heads=1, intermediate_size=48, max_position_embeddings=16))


def _t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=WORDS, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2,
                                               dropout_rate=0.0))


def _vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                                               intermediate_size=48, image_size=16, patch_size=4, num_labels=WORDS,
                                               **NO_DROP))


def _resnet():
    from torchvision.models import resnet18

    return resnet18(num_classes=WORDS)


def _ids(draw, length=12):
    return torch.randint(0, WORDS, (ROWS, length), generator=draw)


def _masked(draw):
    """Rows of words, the last ones padded."""
    lengths = torch.randint(6, 13, (ROWS, 1), generator=draw)
    return {"input_ids": _ids(draw), "attention_mask": (torch.arange(12) < lengths).long()}


# name: the model, pairs of tied parameters, the inputs of a batch, the shape of its labels
MODELS = {
    "bert": (_bert, [("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")],
             lambda draw: {"input_ids": _ids(draw)}, (ROWS, 12)),
    "bert masked": (_bert, [("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")], _masked,
                    (ROWS, 12)),
    "gpt2": (_gpt2, [("transformer.wte.weight", "lm_head.weight")], lambda draw: {"input_ids": _ids(draw)}, (ROWS, 12)),
    "llama": (_llama, [], lambda draw: {"input_ids": _ids(draw)}, (ROWS, 12)),
    "llama masked": (_llama, [], _masked, (ROWS, 12)),
    "t5": (_t5, [("shared.weight", "lm_head.weight")],
           lambda draw: {"input_ids": _ids(draw), "decoder_input_ids": _ids(draw, 9)}, (ROWS, 9)),
    "t5 masked": (_t5, [("shared.weight", "lm_head.weight")],
                  lambda draw: {**_masked(draw), "decoder_input_ids": _ids(draw, 9)}, (ROWS, 9)),
    "vit": (_vit, [], lambda draw: {"pixel_values": torch.randn(ROWS, 3, 16, 16, generator=draw)}, (ROWS,)),
    "resnet18": (_resnet, [], lambda draw: torch.randn(ROWS, 3, 32, 32, generator=draw), (ROWS,)),
}


def _loss(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _plain(whole, inputs, labels):
    """A step of the model itself, over the same micro-batches."""
    total = 0.0
    for at in range(0, ROWS, EACH):
        y = labels[at:at + EACH]
        if isinstance(inputs, dict):
            out = whole(**{name: value[at:at + EACH] for name, value in inputs.items()}).logits
        else:
            out = whole(inputs[at:at + EACH])
        part = _loss(out, y) * (len(y) / ROWS)
        part.backward()
        total += part.item()
    return total


METHODS = {"gpipe": {}, "1f1b": {"with_recompute": True}, "zb-v": {}, "interleaved-1f1b": {"chunks": 2}, "varuna": {},
           "zb-h1": {"with_recompute": True}}  # beside zb-h1 without recompute, which all cases try
GRID = [f"{model} by {method}" for model in ("bert masked", "gpt2", "llama masked", "t5 masked", "vit", "resnet18")
        for method in METHODS]
ON_FOUR = [case for case in GRID if not case.endswith((" zb-v", " interleaved-1f1b"))]  # for which the models have layers


def run(case, micros, seed):
    """"MODEL" or "MODEL by METHOD": trains both, and prints by how much they are apart."""
    name, _, method = case.partition(" by ")
    make, ties, inputs_of, shape = MODELS[name]
    torch.manual_seed(seed)
    model = make()
    torch.manual_seed(seed)
    whole = make().train()
    pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(model), _loss, method or "zb-h1", micros, tied=ties,
                               **METHODS.get(method, {}))
    rules = [torch.optim.SGD(p, lr=0.1) for p in (pipe.parameters(), whole.parameters())]
    draw = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        inputs, labels = inputs_of(draw), torch.randint(0, WORDS, shape, generator=draw)
        found = pipe.step(inputs, labels)
        rules[0].step()
        rules[1].zero_grad()
        plain = _plain(whole, inputs, labels)
        rules[1].step()
    names = dict(whole.named_parameters(remove_duplicate=False))
    state = dict(pipe.named_parameters())
    apart = max(float((t.detach() - names[n].detach()).norm() / names[n].detach().norm().clamp_min(1e-3))
                for n, t in state.items())
    bits = found == plain and all(torch.equal(t, names[n]) for n, t in state.items())
    keys = set(pipe.state_dict()) == set(whole.state_dict())
    print(f"CASE {case}: worker {pipe.transport.worker} bits {bits} weights {apart:.2e} "
          f"numbers {abs(found - plain) / plain:.2e} names {keys}", flush=True)
