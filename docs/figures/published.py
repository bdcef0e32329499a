"""Figures from papers, with their sources. docs/make_reproduction.py recomputes them."""

from __future__ import annotations

from typing import NamedTuple

ZERO_BUBBLE = (
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), tables 5 and 6. The six rows of 16 and 32 "
    "workers as the authors' repository prints them (sail-sg/zero-bubble-pipeline-parallelism, branch arxiv, "
    "megatron/core/pipeline_parallel/efficiency.py), which leaves their interleaved column out."
)


class ZeroBubbleRow(NamedTuple):
    """One setting: times in ms, layers of the model, and the printed span bubble rates (None: not available)."""

    model: str
    stages: int
    micro_batches: int
    forward: float
    input_grad: float
    weight_grad: float
    latency: float
    layers: int
    rates: dict[str, float | None]


def _row(text: str) -> ZeroBubbleRow:
    model, p, m, *times, layers, one, loops, h1, h2, one_p, two_p = text.split()
    printed = (one, loops, h1, h2, one_p, two_p)
    names = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p")
    rates = {n: None if r == "?" else float(r) for n, r in zip(names, printed, strict=True)}
    f, b, w, c = map(float, times)
    return ZeroBubbleRow(model, int(p), int(m), f, b, w, c, int(layers), rates)


# model, P, M, F, B, W, latency, layers; 1F1B, interleaved, ZB-H1, ZB-H2, ZB-1p, ZB-2p
ZERO_BUBBLE_ROWS = [
    _row(line)
    for line in """
1.5B   8  24 18.522 18.086  9.337 0.601 24 .2431 .1055 .1585 .1083 .1585 .0433
1.5B   8  32 18.513 18.086  9.331 0.626 24 .1985 .0818 .1242 .0837 .1242 .0039
1.5B   8  64 18.546 18.097  9.321 0.762 24 .1240 .0443 .0674 .0444 .0674 .0026
6.2B   8  24 29.718 29.444 19.927 0.527 32 .2347 .0808 .1323 .0698 .1323 .0029
6.2B   8  32 29.802 29.428 19.530 0.577 32 .1898 .0628 .1045 .0559 .1045 .0022
6.2B   8  64 29.935 29.621 19.388 0.535 32 .1091 .0320 .0554 .0294 .0554 .0010
14.1B 16  48 11.347 11.248  8.132 0.377 48 .2552     ? .1397 .0672 .1397 .0066
14.1B 16  64 11.307 11.254  8.101 0.379 48 .2082     ? .1088 .0516 .1088 .0054
14.1B 16 128 11.325 11.308  8.109 0.378 48 .1251     ? .0576 .0266 .0576 .0028
28.3B 32  96 10.419 10.207  7.715 0.408 64 .2646     ? .1421 .0641 .1421 .0038
28.3B 32 128 10.408 10.204  7.703 0.408 64 .2168     ? .1106 .0490 .1106 .0029
28.3B 32 256 10.402 10.248  7.698 0.460 64 .1352     ? .0594 .0257 .0594 .0018
""".strip().splitlines()
]

# Results of the authors' script for the interleaved column (run once, not printed by the authors): rows 7 to 12.
INTERLEAVED_BY_SCRIPT = [0.1104, 0.0852, 0.0445, 0.1493, 0.1164, 0.0624]

# F = B = W = 1, no latency, 4 workers, any M >= 8: method, its options, makespan bubble and peak (None: M).
UNIT_TIMES: list[tuple[str, dict[str, object], float, float | None]] = [
    ("gpipe", {}, 9, None),
    ("1f1b", {}, 9, 4),
    ("zb-h1", {}, 3, 4),
    ("zb-h2", {}, 3, 7),
    ("interleaved-1f1b", {"chunks": 2}, 4.5, 5.5),
    ("interleaved-1f1b", {"chunks": 4}, 2.25, 4.75),
    ("zb-v", {}, 1.5, 4),
    ("v-half", {}, 2.5, 3),
    ("v-min", {}, 5.5, 2),
    ("dualpipev", {}, 1.5, 4.5),
    ("dualpipe", {}, 1, 5),
    ("dualpipe", {"pair_semantics": "atomic"}, 2, 5),
]

# Chimera, D = N = 4, F = 1, B = 2: starts per worker.
CHIMERA_STARTS = [
    "F0@0 F1@1 F2@3 B2@4 F3@6 B3@7 B0@10 B1@14",
    "F0@1 F2@2 F1@3 F3@4 B2@6 B0@8 B3@10 B1@12",
    "F2@1 F0@2 F3@3 F1@4 B0@6 B2@8 B1@10 B3@12",
    "F2@0 F3@1 F0@3 B0@4 F1@6 B1@7 B2@10 B3@14",
]
# D = 4: concatenation, N, B (F = 1), makespan.
CHIMERA_MAKESPANS = [
    ("direct", 4, 2, 16), ("direct", 8, 2, 30), ("direct", 16, 2, 58), ("direct", 8, 1, 18),
    ("doubling", 8, 2, 27), ("doubling", 8, 3, 36), ("halving", 4, 2, 14), ("halving", 8, 2, 26),
    ("direct", 5, 2, 25), ("direct", 6, 2, 25), ("direct", 7, 2, 30), ("direct", 9, 2, 39), ("direct", 10, 2, 39),
    ("doubling", 5, 2, 25), ("doubling", 6, 2, 25), ("doubling", 7, 2, 30), ("doubling", 9, 2, 36),
    ("doubling", 10, 2, 36), ("halving", 5, 2, 21), ("halving", 6, 2, 22), ("halving", 7, 2, 26),
    ("halving", 9, 2, 33), ("halving", 10, 2, 34),
]  # fmt: skip
# Bubble ratio in percent, one digit: method, D, N, B.
RATIOS = [
    ("chimera", 4, 4, 1, 20.0), ("chimera", 4, 4, 2, 25.0), ("chimera", 4, 4, 3, 27.3),
    ("gpipe", 4, 4, 2, 42.9), ("gpipe", 8, 8, 2, 46.7), ("gpipe", 4, 8, 2, 27.3), ("gpipe", 8, 16, 2, 30.4),
    ("1f1b", 4, 4, 2, 42.9), ("1f1b", 8, 8, 2, 46.7), ("1f1b", 4, 8, 2, 27.3), ("1f1b", 8, 16, 2, 30.4),
]  # fmt: skip
# BERT-base on P100, 32 samples, one block per stage, D = N = 4: ms, busy %, samples/s; with PipeFisher's work: samples/s and
# number of steps with bubbles per refresh of the curvature.
BERT_BASE = {"gpipe": (183.4, 57.1, 698.0, 673.0, 2.21), "chimera": (137.7, 76.1, 929.6, 885.8, 5.28)}


class Filled(NamedTuple):
    """A row of PipeFisher's tables: as many micro-batches as stages; busy % without and with K-FAC in the bubbles; steps per
    refresh."""

    method: str
    table: str
    stages: int
    blocks: int
    alone: float
    filled: float
    refresh: int


FILLED = [
    Filled("gpipe", "bert-base_p100", 4, 3, 41.7, 89.0, 2), Filled("1f1b", "bert-base_p100", 4, 3, 41.5, 88.7, 2),
    Filled("chimera", "bert-large_p100", 8, 3, 59.8, 97.6, 4),
]  # fmt: skip

# Varuna, P = 4, N = 5: order of each stage.
VARUNA_ORDER = [
    "F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4",
    "F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4",
    "F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4",
    "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
]
# P = 4, F = R = 1, B = 2: N, with the run-time rule, makespans for latency 0, 1, 2, 5.
VARUNA_MAKESPANS = [
    (5, False, (27, 35, 43, 67)), (5, True, (26, 30, 36, 54)),
    (8, False, (39, 49, 59, 89)), (8, True, (39, 45, 46, 63)),
]  # fmt: skip

# Smallest number of send slots of a plan lowered by the rule of docs/reference.md: method, P, M, slots.
SEND_SLOTS = [
    ("gpipe", 4, 8, 0), ("gems", 4, 8, 0), ("1f1b", 4, 8, 1), ("zb-h1", 4, 8, 1), ("zb-h2", 4, 8, 1),
    ("looped-bfs", 4, 8, 2), ("looped-bfs", 4, 16, 2), ("chimera --concat doubling", 4, 16, 2), ("zb-v", 4, 8, 2),
    ("dualpipe", 4, 8, 2), ("dualpipev", 4, 8, 2), ("interleaved-zb", 4, 8, 2), ("interleaved-zb", 8, 16, 3),
    ("varuna", 4, 16, 3),
]  # fmt: skip

# BERT blocks of config/costs at 32 samples, ms: F, B, curvature, inverse, preconditioning.
BLOCKS = {
    "bert-base_p100": (9.75, 16.45, 25.55, 71.67, 6.81), "bert-base_v100": (6.07, 9.73, 16.18, 49.09, 3.89),
    "bert-base_rtx3090": (3.02, 5.09, 6.95, 38.51, 1.69), "bert-large_p100": (16.10, 26.95, 43.50, 126.70, 14.73),
    "bert-large_v100": (10.39, 16.28, 27.45, 80.85, 8.90), "bert-large_rtx3090": (4.85, 7.78, 10.99, 61.99, 3.86),
}  # fmt: skip
# BERT of width 1024, sequence 128, untied decoder: floats of a boundary tensor with the mask, by samples; parameters;
# parameters of a first stage of 24, 12, 6 and 3 layers, by D.
BOUNDARY_FLOATS = {16: 2099200, 8: 1049600, 4: 524800}
PARAMETERS = {
    "a layer": 12596224, "the embeddings": 31782912, "the pooler": 1049600, "transform and norm of the MLM head": 1051648,
    "its decoder": 31254528, "its bias": 30522, "the NSP head": 2050, "BERT with 48 layers": 669790012,
}  # fmt: skip
FIRST_STAGES = {2: 334092288, 4: 182937600, 8: 107360256, 16: 69571584}
# GPT-2 with 64 layers, width 1280, untied head; 632 tokens between stages.
GPT_PARAMETERS = {"a layer of GPT-2, width 1280": 19677440, "GPT-2 with 64 layers": 1389327360}
GPT_FIRST_STAGES = {8: 223059200, 16: 144349440, 32: 104994560, 64: 85317120}
GPT_BOUNDARY_FLOATS = 808960
# BERT-Large, chimera, 8 stages on 8 P100, 32 samples: busy share of the measured run (PipeFisher, without its work).
MEASURED_BUSY = 59.8
