"""Cases of torch_worker.py with unmodified models of transformers and torchvision, compared with the pieces of blocks.split.
"""

import torch
from torch import nn

import hetu.torch
import hetu.torch.blocks

ROWS, EACH, STEPS, WORDS = 11, 3, 3, 64  # the last micro-batch has 2
SEQUENCE = {"vocab_size": WORDS, "hidden_size": 32, "num_attention_heads": 2}


# Each function makes a model with a number of blocks. Dropout is off by default, because the unsplit model draws random
# numbers in another order.
def _bert(layers=3, drop=0.0):
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**SEQUENCE, num_hidden_layers=layers, intermediate_size=48, max_position_embeddings=16,
                                      hidden_dropout_prob=drop, attention_probs_dropout_prob=drop))


def _gpt2(layers=3, drop=0.0):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=layers, n_head=2, n_positions=16,
                                      resid_pdrop=drop, embd_pdrop=drop, attn_pdrop=drop))


def _llama(layers=3, drop=0.0):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SEQUENCE, num_hidden_layers=layers, num_key_value_heads=1, intermediate_size=48,
                                        max_position_embeddings=16, attention_dropout=drop))


def _t5(layers=2, drop=0.0):
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=WORDS, d_model=32, d_kv=16, d_ff=48, num_layers=layers,
                                               num_heads=2, dropout_rate=drop, use_cache=False))


def _vit(layers=3, drop=0.0):
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(hidden_size=32, num_hidden_layers=layers, num_attention_heads=2,
                                               intermediate_size=48, image_size=16, patch_size=4, num_labels=WORDS,
                                               hidden_dropout_prob=drop, attention_probs_dropout_prob=drop))


def _resnet(layers=8, drop=0.0):
    """Returns a ResNet, which has eight blocks and no dropout."""
    from torchvision.models import resnet18

    return resnet18(num_classes=WORDS)


def _ids(draw, rows, length=12):
    return torch.randint(0, WORDS, (rows, length), generator=draw)


def _masked(draw, rows):
    """Returns rows of words with padding at the end."""
    lengths = torch.randint(6, 13, (rows, 1), generator=draw)
    return {"input_ids": _ids(draw, rows), "attention_mask": (torch.arange(12) < lengths).long()}


# name: the model, pairs of tied parameters, the inputs of a batch with a number of rows, the shape of a row's labels
MODELS = {
    "bert": (_bert, [("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")],
             lambda draw, rows: {"input_ids": _ids(draw, rows)}, (12,)),
    "bert masked": (_bert, [("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")], _masked,
                    (12,)),
    "gpt2": (_gpt2, [("transformer.wte.weight", "lm_head.weight")],
             lambda draw, rows: {"input_ids": _ids(draw, rows)}, (12,)),
    "llama": (_llama, [], lambda draw, rows: {"input_ids": _ids(draw, rows)}, (12,)),
    "llama masked": (_llama, [], _masked, (12,)),
    "t5": (_t5, [("shared.weight", "lm_head.weight")],
           lambda draw, rows: {"input_ids": _ids(draw, rows), "decoder_input_ids": _ids(draw, rows, 9)}, (9,)),
    "t5 masked": (_t5, [("shared.weight", "lm_head.weight")],
                  lambda draw, rows: {**_masked(draw, rows), "decoder_input_ids": _ids(draw, rows, 9)}, (9,)),
    "vit": (_vit, [], lambda draw, rows: {"pixel_values": torch.randn(rows, 3, 16, 16, generator=draw)}, ()),
    "resnet18": (_resnet, [], lambda draw, rows: torch.randn(rows, 3, 48, 48, generator=draw), ()),
}


def loss_of(logits, labels):
    """Returns the cross entropy of words."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _plain(whole, inputs, labels):
    """Computes a step of the model itself, over the same micro-batches. Returns the loss."""
    total = 0.0
    for at in range(0, ROWS, EACH):
        y = labels[at:at + EACH]
        if isinstance(inputs, dict):
            out = whole(**{name: value[at:at + EACH] for name, value in inputs.items()}).logits
        else:
            out = whole(inputs[at:at + EACH])
        part = loss_of(out, y) * (len(y) / ROWS)
        part.backward()
        total += part.item()
    return total


def run(name, micros, seed):
    """Trains both, and prints their differences."""
    make, ties, inputs_of, shape = MODELS[name]
    torch.manual_seed(seed)
    model = make()
    torch.manual_seed(seed)
    whole = make().train()
    pipe = hetu.torch.Pipeline(hetu.torch.blocks.split(model), loss_of, "zb-h1", micros, tied=ties)
    rules = [torch.optim.SGD(p, lr=0.1) for p in (pipe.parameters(), whole.parameters())]
    draw = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        inputs, labels = inputs_of(draw, ROWS), torch.randint(0, WORDS, (ROWS, *shape), generator=draw)
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
    print(f"CASE {name}: worker {pipe.transport.worker} bits {bits} weights {apart:.2e} "
          f"numbers {abs(found - plain) / plain:.2e} names {keys}", flush=True)
