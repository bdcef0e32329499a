"""Simulates the largest possible savings by optimizer sweeps in pipeline bubbles, over the published times of blocks.

The saving is a step with sweeps, less a step without, less one sweep that nothing hides. Times are in config/costs.

    python3 tests/bench/sweeps.py                          # half a minute; the table of docs/kfac.md

A sweep reads and writes 28 bytes per parameter (Adam: the weight, the gradient and two moments read, all but the gradient
written) at 80 % of the GPU's published bandwidth. One block per stage, as many micro-batches as stages (twice as many for
dualpipe and dualpipev)."""
import csv
import json
import pathlib
import subprocess

COSTS = pathlib.Path(__file__).resolve().parents[2] / "config" / "costs"
BANDWIDTH = {"p100": 732e9, "v100": 900e9, "rtx3090": 936e9}  # bytes per second, by NVIDIA's data sheets
METHODS = ("gpipe", "1f1b", "zb-h1", "varuna", "chimera", "gems", "hanayo", "interleaved-1f1b", "looped-bfs",
           "interleaved-zb", "zb-v", "v-half", "dualpipe", "dualpipev")


def share(method, stages, file, samples, sweep_ms):
    """Returns the possible saving in percent of a step."""
    micros = 2 * stages if method.startswith("dualpipe") else stages
    words = ["hetu", "simulate", method, "--stages", stages, "--micro-batches", micros, "--costs", file,
             "--micro-batch-size", samples, "--blocks-per-stage", 1, "--update", sweep_ms, "--format", "json"]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    said = json.loads(done.stdout)
    return 100 * (said["step_time"] - said["makespan"] - sweep_ms) / said["step_time"]


def main():
    print("| method | largest micro-batches, at most | micro-batches of one sample |\n|---|---|---|")
    for method in METHODS:
        found = {"largest": [], "one": []}
        for file in sorted(COSTS.glob("*.csv")):
            rows = list(csv.DictReader(file.read_text().splitlines()))
            bandwidth = 0.8 * BANDWIDTH[file.stem.rsplit("_", 1)[1]]
            sweep_ms = 1e3 * 7 * float(rows[0]["mem_param"]) * 2**20 / bandwidth  # mem_param: MiB in float32
            for which, row in (("one", rows[0]), ("largest", rows[-1])):
                found[which] += [share(method, stages, file, row["bs"], sweep_ms) for stages in (2, 4, 8)]
        print(f"| {method} | {max(found['largest']):.2f} % | {max(found['one']):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
