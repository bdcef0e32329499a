"""Models in their usual form, unmodified: nanoGPT, nn.TransformerEncoder, a mixture of experts."""

import dataclasses

import torch
from torch import nn
from torch.nn import functional

WORDS = 64


@dataclasses.dataclass
class Config:
    """The configuration of nanoGPT."""

    block_size: int = 16
    vocab_size: int = WORDS
    n_layer: int = 4
    n_head: int = 2
    n_embd: int = 32
    dropout: float = 0.0
    bias: bool = True


class CausalSelfAttention(nn.Module):
    """The attention of nanoGPT."""

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout

    def forward(self, x):
        """Attends to earlier tokens."""
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k, q, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (k, q, v))
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    """The block of nanoGPT."""

    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(),
                                 nn.Linear(4 * config.n_embd, config.n_embd), nn.Dropout(config.dropout))

    def forward(self, x):
        """Returns a tensor of the same shape."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGpt(nn.Module):
    """The forward of nanoGPT's model.py, with its asserts, its tied head and its optional targets."""

    def __init__(self, config=None):
        super().__init__()
        self.config = config = config or Config()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd), "wpe": nn.Embedding(config.block_size, config.n_embd),
            "drop": nn.Dropout(config.dropout), "h": nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            "ln_f": nn.LayerNorm(config.n_embd)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        """Returns (logits, loss)."""
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size, f"Cannot forward sequence of length {t}, block size is only " \
                                            f"{self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        tok_emb = self.transformer.wte(idx)
        pos_emb = self.transformer.wpe(pos)
        x = self.transformer.drop(tok_emb + pos_emb)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss


class Encoder(nn.Module):
    """An nn.TransformerEncoder with a causal mask, between an embedding and a head."""

    def __init__(self, layers=4):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 48, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(32, WORDS)

    def forward(self, ids):
        """Returns logits."""
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.encoder(self.words(ids), mask=mask, is_causal=True))


class Experts(nn.Module):
    """A mixture of experts. The rows of an expert depend on values, and so does the branch after it."""

    def __init__(self, width=32, experts=3):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, experts), nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        """Returns a tensor of the same shape."""
        flat = x.flatten(0, -2)
        weight, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if rows.numel() > 0:
                out = out.index_add(0, rows, expert(flat[rows]) * weight[rows, None])
        scale = 0.5 if out.abs().max().item() > 1 else 1.0
        return x + (out * scale).view(x.shape)


class Mixture(nn.Module):
    """Layers of experts between an embedding and a head."""

    def __init__(self, layers=4):
        super().__init__()
        self.words, self.layers = nn.Embedding(WORDS, 32), nn.ModuleList(Experts() for _ in range(layers))
        self.head = nn.Linear(32, WORDS)

    def forward(self, ids):
        """Returns logits."""
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
