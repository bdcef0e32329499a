"""Chimera's figures, its measured blocks, and its profile of BERT-Large without a GPU."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from figures import published
from figures.page import Page, command, simulated, worst_of

from hetu import _hetu, graph, models, schedule

COSTS = Path(__file__).resolve().parents[2] / "config" / "costs"
PICTURE = "bert-large_chimera_8stages_8gpus_microbs32_acc1.svg"


def row_starts(run: dict[str, Any], worker: int) -> str:
    events = [e for e in run["events"] if e["worker"] == worker and e["kind"] in ("F", "B")]
    return " ".join(f"{e['kind']}{e['micro']}@{e['start_us'] / 1000:g}" for e in events)


DEPTHS, UNITS = (2, 4, 6, 8, 12, 16), (1, 2, 3, 4)
EVERY = [(d, k * d, k) for d in DEPTHS for k in UNITS]
EVEN = [(d, n, k) for d, n, k in EVERY if k % 2 == 0]
PAIRED = [(d, f) for d in DEPTHS for f in range(1, d // 2 + 1) if d // 2 % f == 0]
DOUBLE, HALVE = {"concat": "doubling"}, {"concat": "halving"}


def run(d: int, n: int, b: float, **how: Any) -> dict[str, Any]:
    return simulated("chimera", stages=d, micro_batches=n, forward=1, backward=b, **how)


def makespans(page: Page) -> list[Any]:
    return [
        worst_of(
            page,
            "N = D: D F + (2D-2) B, B = 1, 1.5, 2, 3, 4",
            [(d + (2 * d - 2) * b, run(d, d, b)["makespan"]) for d in DEPTHS for b in (1, 1.5, 2, 3, 4)],
        ),
        worst_of(
            page,
            "direct, B = F, any pairs f: 2N + D/f - 2",
            [(2 * k * d + d / f - 2, run(d, k * d, 1, pairs=f)["makespan"]) for d, f in PAIRED for k in UNITS],
        ),
        worst_of(
            page,
            "direct, B = 2F: (5D-4) + (K-1)(4D-2)",
            [(5 * d - 4 + (k - 1) * (4 * d - 2), run(d, n, 2)["makespan"]) for d, n, k in EVERY],
        ),
        worst_of(
            page,
            "doubling, K even, B = 2F: 3N + 3(D-2)/2",
            [(3 * n + 3 * (d - 2) / 2, run(d, n, 2, **DOUBLE)["makespan"]) for d, n, k in EVEN],
        ),
        worst_of(
            page,
            "doubling, K even, B = 3F: 4N + (1+K/2)(D-2)",
            [(4 * n + (1 + k / 2) * (d - 2), run(d, n, 3, **DOUBLE)["makespan"]) for d, n, k in EVEN],
        ),
        worst_of(
            page, "halving, B = 2F: 3N + D - 2", [(3 * n + d - 2, run(d, n, 2, **HALVE)["makespan"]) for d, n, k in EVERY]
        ),
        worst_of(
            page,
            "halving, B = 3F: 4N + (1+K/2)(D-2)",
            [(4 * n + (1 + k / 2) * (d - 2), run(d, n, 3, **HALVE)["makespan"]) for d, n, k in EVERY],
        ),
    ]


def bubble_ratios(page: Page) -> list[Any]:
    return [
        worst_of(
            page,
            "bubble ratio, B = F, f pairs, N = D: (D-2f)/(2fN + D - 2f)",
            [((d - 2 * f) / (2 * f * d + d - 2 * f), run(d, d, 1, pairs=f)["bubble_fraction"]) for d, f in PAIRED],
        ),
        worst_of(
            page,
            "bubble ratio, B = F, and doubling with B = 2F: (D-2)/(2N + D - 2)",
            [
                ((d - 2) / (2 * n + d - 2), found)
                for d, n, k in EVEN
                for found in (run(d, n, 1)["bubble_fraction"], run(d, n, 2, **DOUBLE)["bubble_fraction"])
            ],
        ),
        worst_of(
            page,
            "bubble ratio, N = D, B = 2F: (2D-4)/(5D-4)",
            [((2 * d - 4) / (5 * d - 4), run(d, d, 2)["bubble_fraction"]) for d in DEPTHS],
        ),
        worst_of(
            page,
            "bubble ratio, halving, B = 2F: (D-2)/(3N + D - 2)",
            [((d - 2) / (3 * n + d - 2), run(d, n, 2, **HALVE)["bubble_fraction"]) for d, n, k in EVERY],
        ),
    ]


def closed_forms(page: Page) -> None:
    rows = makespans(page) + bubble_ratios(page)
    for title, how, form in (
        ("peak of worker w, direct: D/2 + 1 + min(w, D-1-w)", {}, lambda d, low: d // 2 + 1 + low),
        ("peak of worker w, doubling: 3D/2 + 1 + min(w, D-1-w)", DOUBLE, lambda d, low: 3 * d // 2 + 1 + low),
        ("peak of worker w, halving: half of doubling's, rounded up", HALVE, lambda d, low: (3 * d // 2 + 2 + low) // 2),
    ):
        pairs = [
            (form(d, min(w, d - 1 - w)), worker["peak_activations"])
            for d, n, _ in EVEN
            for w, worker in enumerate(run(d, n, 2, **how)["workers"])
        ]
        rows.append(worst_of(page, title, pairs))
    page.table(["closed form, F = 1, D = 2 to 16, N = K D", "figures", "largest difference"], rows)


def figures(page: Page) -> None:
    page.section(
        "Chimera",
        "Source: Li and Hoefler, Chimera, SC 2021, and the code published with it. D is the number of stages, N of "
        "micro-batches, and B a full backward.",
        "Start times at D = N = 4, F = 1, B = 2, makespan 16:",
        command("chimera", stages=4, micro_batches=4) + ".",
    )
    run = simulated("chimera", stages=4, micro_batches=4, forward=1, backward=2)
    rows = [
        [f"P{w}", page.cell(f"chimera starts, P{w}", text, row_starts(run, w))]
        for w, text in enumerate(published.CHIMERA_STARTS)
    ]
    page.table(["worker", "published / Hetu"], rows)
    page.prose(
        "Makespans at D = 4, F = 1:", command("chimera", stages=4, micro_batches=8, concat="doubling", backward=3) + "."
    )
    rows = []
    for concat, n, b, known in published.CHIMERA_MAKESPANS:
        run = simulated("chimera", stages=4, micro_batches=n, concat=concat, forward=1, backward=b)
        rows.append([concat, str(n), str(b), page.cell(f"chimera {concat}, N = {n}, B = {b}", known, run["makespan"])])
    page.table(["concatenation", "N", "B", "makespan"], rows)
    closed_forms(page)
    page.prose(
        "Bubble ratios in percent:", command("chimera", stages=4, micro_batches=4, backward=3), "→ `bubble_fraction`."
    )
    rows = []
    for method, d, n, b, known in published.RATIOS:
        found = 100 * simulated(method, stages=d, micro_batches=n, forward=1, backward=b)["bubble_fraction"]
        rows.append([method, str(d), str(n), f"{b} F", page.cell(f"{method}, D = {d}, N = {n}, B = {b} F", known, found, 1)])
    page.table(["method", "D", "N", "B", "bubble, %"], rows)


def block_row(name: str) -> dict[str, float]:
    """Returns the row of 32 samples of a table in config/costs."""
    with (COSTS / f"{name}.csv").open() as file:
        return next({k: float(v) for k, v in row.items()} for row in csv.DictReader(file) if row["bs"] == "32")


def blocks(page: Page) -> None:
    page.section(
        "Measured blocks",
        "The tables published with the code of Chimera and PipeFisher, converted into `config/costs/`. Times are in ms, for "
        "32 samples.",
    )
    rows = []
    for name, known in published.BLOCKS.items():
        row = block_row(name)
        columns = zip(("time_f", "time_b", "time_kron", "time_inv", "time_prec"), known, strict=True)
        rows.append([name, *(page.cell(f"{name}: {column}", value, row[column], 2) for column, value in columns)])
    page.table(["block", "F", "B", "curvature", "inverse", "preconditioning"], rows)
    file = {"costs": "config/costs/bert-base_p100.csv", "micro_batch_size": 32, "blocks_per_stage": 1}
    page.prose(
        "One block of BERT-base per stage on P100, D = N = 4:",
        command("chimera", stages=4, micro_batches=4, **file) + ".",
        "With PipeFisher (Osawa et al., MLSys 2023), a step ends with the preconditioning, and a refresh of the curvature "
        "takes as",
        "many steps as its work needs to fit into bubbles.",
    )
    rows, row = [], block_row("bert-base_p100")
    for method, (ms, busy, rate, fisher, refresh) in published.BERT_BASE.items():
        run = simulated(
            method, stages=4, micro_batches=4, costs=COSTS / "bert-base_p100.csv", micro_batch_size=32, blocks_per_stage=1
        )
        step, name = run["makespan"], f"{method}, BERT-base"
        rows.append(
            [
                method,
                page.cell(f"{name}: ms", ms, step, 1),
                page.cell(f"{name}: busy", busy, 100 - 100 * run["bubble_fraction"], 1),
                page.cell(f"{name}: samples/s", rate, 128e3 / step, 1),
                page.cell(f"{name}: samples/s with PipeFisher", fisher, 128e3 / (step + row["time_prec"]), 1),
                page.cell(
                    f"{name}: steps per refresh",
                    refresh,
                    (row["time_inv"] + 4 * row["time_kron"]) / (step - run["ideal"]),
                    2,
                ),
            ]
        )
    page.table(["method", "step, ms", "busy, %", "samples/s", "with PipeFisher, samples/s", "steps per refresh"], rows)


def bert_graph(config: models.BertConfig, masked: int = 0) -> Any:
    """Returns the graph that trains a BERT on rows of 128 tokens. With `masked`, the heads read at most that many positions
    of a row, as in train_bert.py; 0: all positions."""
    building = graph.new_graph()
    batch = SimpleNamespace(next_sentence_labels=graph.placeholder("next_sentence_labels", "int32", [graph.BATCH]))
    lengths = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), 128)
    lengths |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), masked) if masked else {"masked_lm_labels": 128}
    for field, length in lengths.items():
        setattr(batch, field, graph.placeholder(field, "int32", [graph.BATCH, length]))
    building.builder.differentiate(models.Bert(config).pretraining_loss(batch).number)
    graph.new_graph()
    return building.builder.finish()


def wide_bert(layers: int) -> Any:
    """Returns the graph of a BERT with width 1024 and an untied decoder."""
    config = models.BertConfig(
        hidden_size=1024,
        num_hidden_layers=layers,
        num_attention_heads=16,
        intermediate_size=4096,
        tie_word_embeddings=False,
    )
    return bert_graph(config)


def gpt_counts() -> dict[str, int]:
    """Returns the parameters of GPT-2 with 64 layers of width 1280 and an untied head, by name."""
    gpt = models.Gpt.from_config("gpt2", n_embd=1280, n_layer=64, n_head=20, tie_word_embeddings=False)
    return {name: math.prod(parameter.shape) for name, parameter in gpt.named_parameters()}


def gpt_sizes(page: Page) -> list[list[str]]:
    """Returns the rows of the table of sizes."""
    counts = gpt_counts()

    def total(*starts: str) -> int:
        return sum(count for name, count in counts.items() if name.startswith(starts))

    found = {"a layer of GPT-2, width 1280": total("transformer.h.0."), "GPT-2 with 64 layers": total("")}
    rows = [[f"parameters of {name}", page.cell(f"parameters of {name}", known, found[name])]
            for name, known in published.GPT_PARAMETERS.items()]
    for depth, known in published.GPT_FIRST_STAGES.items():
        layers = [f"transformer.h.{i}." for i in range(64 // depth)]
        name = f"parameters of its first stage, D = {depth}"
        count = total("transformer.wte.", "transformer.wpe.", *layers)
        rows.append([name, page.cell(f"GPT-2: {name}", known, count)])
    name = "floats between its stages, 1 sample of 632 tokens"
    return [*rows, [name, page.cell(name, published.GPT_BOUNDARY_FLOATS, 632 * 1280)]]


def blocks_of_stages(model: Any, stages: int) -> list[int]:
    """Returns the number of blocks of each stage for a model that is cut by operations."""
    starts = [*_hetu.balance_stages(model, stages), model.blocks]
    return [end - start for start, end in pairwise(starts)]


def sizes(page: Page) -> None:
    page.prose(
        "Sizes of the models, counted in the graph that `hetu.models.Bert` builds (width 1024, 128 tokens, untied decoder). "
        "The",
        "published ones come from Chimera's code for BERT with 48 layers, whose first stage on 16 workers is BERT-Large's "
        "on 8:",
        "the embeddings and 3 layers. GPT-2 with 64 layers of width 1280 has its own head, and its embeddings are in stage "
        "0.",
    )
    counts = {name: math.prod(shape) for name, shape in wide_bert(48).parameters}

    def total(*starts: str) -> int:
        return sum(count for name, count in counts.items() if name.startswith(starts))

    found = {
        "a layer": total("bert.encoder.layer.0."),
        "the embeddings": total("bert.embeddings."),
        "the pooler": total("bert.pooler."),
        "transform and norm of the MLM head": total("cls.predictions.transform."),
        "its decoder": total("cls.predictions.decoder."),
        "its bias": total("cls.predictions.bias"),
        "the NSP head": total("cls.seq_relationship."),
        "BERT with 48 layers": total(""),
    }
    rows = [
        [f"parameters of {name}", page.cell(f"parameters of {name}", known, found[name])]
        for name, known in published.PARAMETERS.items()
    ]
    for depth, known in published.FIRST_STAGES.items():
        layers = [f"bert.encoder.layer.{i}." for i in range(48 // depth)]
        name = f"parameters of its first stage, D = {depth}"
        rows.append([name, page.cell(name, known, total("bert.embeddings.", *layers))])
    for samples, known in published.BOUNDARY_FLOATS.items():
        name = f"floats between stages with the mask, {samples} samples"
        rows.append([name, page.cell(name, known, samples * 128 * (1024 + 1))])
    page.table(["size", "published / Hetu"], [*rows, *gpt_sizes(page)])


def profile(page: Page) -> str:
    """Adds the section on the profiling step in the README of Chimera's code. Returns the section's figure."""
    page.section(
        "Profiling Chimera with 8 stages for BERT-Large on 8 GPUs, without a GPU",
        "The step of that name in the README of Chimera's code,",
        "from its published times of blocks: 24 layers, 3 per stage, 32 samples, 4 micro-batches down and 4 up.",
    )
    page.add(
        "```bash",
        "hetu simulate chimera --stages 8 --micro-batches 8 --costs config/costs/bert-large_p100.csv \\",
        "     --micro-batch-size 32 --blocks-per-stage 3 --style profile --format svg -o profile.svg",
        "```",
    )
    page.add(f"![BERT-Large by Chimera on 8 P100, predicted](pictures/{PICTURE})")
    costs: dict[str, Any] = {"costs": COSTS / "bert-large_p100.csv", "micro_batch_size": 32, "blocks_per_stage": 3}
    plan = schedule.generate("chimera", stages=8, micro_batches=8)
    run, block = schedule.simulate(plan, **costs), block_row("bert-large_p100")
    f, b, workers = 3 * block["time_f"], 3 * block["time_b"], range(8)
    step = 8 * f + 14 * b
    placed = [[plan.placements[s]["workers"][0], plan.placements[8 + s]["workers"][0]] for s in workers]
    peaks = [5 + min(w, 7 - w) for w in workers]
    memory = [3 * (2 * block["mem_param"] + peak * block["mem_act"]) for peak in peaks]

    def each(values: Iterable[float]) -> str:
        return " ".join(f"{value:.0f}" for value in values)

    cells: list[tuple[Any, ...]] = [
        ("ranks of stage 0 to 7: K and 7 - K", str([[s, 7 - s] for s in workers]), str(placed)),
        ("step, ms: D F + (2D - 2) B", step, run["makespan"], 1),
        ("busy, %: D (F + B) over the step", 800 * (f + b) / step, 100 - 100 * run["bubble_fraction"], 1),
        ("samples/s", 256e3 / step, 256e3 / run["step_time"], 1),
        (
            "peak of activations of worker 0 to 7: D/2 + 1 + min(w, D - 1 - w)",
            each(peaks),
            each(worker["peak_activations"] for worker in run["workers"]),
        ),
        (
            "these and the weights of two stages, MiB",
            each(memory),
            each(worker["peak_bytes"] / 2**20 for worker in run["workers"]),
        ),
    ]
    page.table(
        ["figure: published form", "its value / Hetu"], [[c[0], page.cell(f"profile, {c[0]}", *c[1:])] for c in cells]
    )
    others = {m: schedule.simulate(schedule.generate(m, stages=8, micro_batches=8), **costs) for m in ("gpipe", "1f1b")}
    shares = " and ".join(f"{m} is busy for {100 - 100 * other['bubble_fraction']:.1f} %" for m, other in others.items())
    page.prose(
        f"With the same blocks {shares}: Chimera comes first, as in its paper. The bytes leave out gradients, optimizer "
        f"state and",
        "working memory.",
    )
    page.prose(
        "`train_bert.py` would cut this model differently, by floating-point operations, in which the heads count:",
        f"into stages of {' + '.join(map(str, blocks_of_stages(wide_bert(24), 8)))} blocks. The first",
        "block is the embeddings and the last is the heads ([training.md](training.md)).",
    )
    sizes(page)
    return str(schedule.render(plan, "svg", style="profile", **costs))
