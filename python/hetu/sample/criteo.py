"""Random click logs in the format of Criteo's display-advertising sets, for `hetu data sample --kind criteo`.

Clicks follow a known logistic model. The logit is a sum over the logarithms of some integers, a weight of each category of
some columns, and weights of pairs of categories. No model without crosses can learn the weights of pairs. The other columns
are noise. So the best possible AUC is known, except for chance: it is that of the true logits, which the command prints.
The same seed and NumPy version give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hetu.command_parser import CommandParser
from hetu.sample.folder import made_whole, refuse_used

if TYPE_CHECKING:
    import numpy as np

KINDS = {"criteo": "train/day_N and val/day_0 of tab-separated click logs"}
INTEGERS, COLUMNS = 13, 26
# Categories per column. The first OF_WEIGHT columns have weights. Pairs of neighbours among the first OF_CROSSES
# columns have crosses.
SIZES = [4, 6, 8, 10, 12, 16, 24, 32, 50, 80, 120, 200, 3, 5, 9, 15, 30, 60, 100, 300, 500, 1000, 2000, 5000, 10000, 20000]
OF_WEIGHT, OF_CROSSES = 12, 6
OF_INTEGERS = 5  # number of integers, from the first on, that have weights
MISSING = 0.1  # share of empty values in the noise columns
BIAS = -1.4


@dataclass
class Options:
    """Properties of the sample. The defaults are those of the command line."""

    train: int = 40000
    val: int = 10000
    days: int = 2
    seed: int = 12345


class Clicks:
    """The model from which labels are sampled."""

    def __init__(self, seed: int) -> None:
        import numpy as np

        random = np.random.Generator(np.random.PCG64([seed, 0]))
        self.of_integers = random.normal(0.0, 0.25, OF_INTEGERS)
        self.of_categories = [random.normal(0.0, 0.35, SIZES[c]) for c in range(OF_WEIGHT)]
        self.of_pairs = [random.normal(0.0, 0.9, (SIZES[c], SIZES[c + 1])) for c in range(0, OF_CROSSES, 2)]
        self.codes = [random.integers(0, 2**32, size, np.uint32) for size in SIZES]

    def draw(self, rows: int, random: np.random.Generator) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Returns lines, true logits and labels. Low categories of a column are more frequent. Integers have a long tail,
        and some are -1."""
        import numpy as np

        numbers = np.floor(np.exp(random.normal(1.5, 1.2, (rows, INTEGERS)))).astype(np.int64)
        numbers[random.random((rows, INTEGERS)) < 0.02] = -1
        places = [np.minimum((size * random.random(rows) ** 2).astype(np.int64), size - 1) for size in SIZES]
        logits = BIAS + (np.log1p(np.maximum(numbers[:, :OF_INTEGERS], 0)) - 1.7) @ self.of_integers
        for c, weights in enumerate(self.of_categories):
            logits += weights[places[c]]
        for i, pairs in enumerate(self.of_pairs):
            logits += pairs[places[2 * i], places[2 * i + 1]]
        labels = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int64)
        gone = random.random((rows, INTEGERS + COLUMNS)) < MISSING
        gone[:, :OF_INTEGERS] = gone[:, INTEGERS:INTEGERS + OF_WEIGHT] = False  # columns with weights are never empty
        columns = [labels.astype(str)]
        columns += [np.where(gone[:, k], "", numbers[:, k].astype(str)) for k in range(INTEGERS)]
        for c, place in enumerate(places):
            codes = np.array([f"{code:08x}" for code in self.codes[c]])
            columns.append(np.where(gone[:, INTEGERS + c], "", codes[place]))
        return ["\t".join(row) + "\n" for row in zip(*columns, strict=True)], logits, labels


def make_clicks(folder: Path, options: Options, progress: Callable[[int, int], object] = lambda done, days: None) -> str:
    """Writes the data set into a new folder, all or nothing. Returns a line that describes it. `progress` receives the
    numbers of written and of all training days."""
    import numpy as np

    from hetu.metrics import auc

    model = Clicks(options.seed)
    with made_whole(folder) as made:
        for name in ("train", "val"):
            (made / name).mkdir()
        per_day = -(-options.train // options.days)
        for day in range(options.days):
            random = np.random.Generator(np.random.PCG64([options.seed, 1, day]))
            lines, _, _ = model.draw(min(per_day, options.train - day * per_day), random)
            (made / "train" / f"day_{day}").write_text("".join(lines), encoding="ascii")
            progress(day + 1, options.days)
        lines, logits, labels = model.draw(options.val, np.random.Generator(np.random.PCG64([options.seed, 2])))
        (made / "val" / "day_0").write_text("".join(lines), encoding="ascii")
    best = auc(logits, labels)
    return (
        f"{folder}: {options.train} rows in {options.days} training days, {options.val} validation rows, "
        f"{100 * labels.mean():.1f} % of them clicked; AUC of the true model on the validation rows {best:.4f}"
    )


def parse(arguments: list[str] | None) -> tuple[Path, Options]:
    """Returns the folder and options of a command line. Exits with status 2 if they are invalid."""
    defaults = Options()
    parser = CommandParser(prog="hetu data sample", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="new or empty folder")
    parser.add_argument("--kind", choices=KINDS, required=True, help="; ".join(f"{k}: {v}" for k, v in KINDS.items()))
    parser.add_argument("--train", type=int, default=defaults.train, help="training rows (%(default)s)")
    parser.add_argument("--val", type=int, default=defaults.val, help="validation rows (%(default)s)")
    parser.add_argument("--days", type=int, default=defaults.days, help="files of training rows (%(default)s)")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="random seed (%(default)s)")
    given = parser.parse_args(arguments)
    if given.train < 1 or given.val < 100 or not 1 <= given.days <= given.train or given.seed < 0:
        parser.error("needs --train >= 1, --val >= 100, --days 1 to --train, --seed >= 0")
    folder = given.folder.absolute()
    refuse_used(parser, folder)
    return folder, Options(given.train, given.val, given.days, given.seed)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    folder, options = parse(arguments)
    try:
        from hetu import _hetu  # imported late, so that --help needs no compiled part

        progress = _hetu.ProgressLine("hetu data sample", "days")
        with progress:
            line = make_clicks(folder, options, progress)
    except ImportError as error:
        print(f"hetu data sample: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"hetu data sample: {folder}: {error}", file=sys.stderr)
        return 4
    print(line)
    return 0
