"""K-FAC in pipeline bubbles: steps of BERT blocks at their published P100 times, predicted and rehearsed.

    python3 tests/bench/kfac_rehearsed.py [--repeat N]     # prints the table of docs/lab/kfac.md; processes: stages

Per model and method it prints four steps: without K-FAC; with K-FAC's work after the compute, refreshed as rarely as in the
filled plan; with K-FAC's work in the bubbles; and the bound, which is the step without K-FAC plus preconditioning. Figures
are medians of N rehearsed cycles after a warm-up. The last columns compare the rehearsed step with two bounds: the predicted
one, and the one from the rehearsed step without K-FAC, which includes messages and timers of a real machine."""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HETURUN = [sys.executable, str(ROOT / "python" / "heturun")]
FACTOR_LAYERS = 6  # of a BERT block: query, key, value, attention output, feed-forward in and out


def words_of(model, method, stages, blocks):
    return [method, "--stages", stages, "--micro-batches", stages,
            "--costs", ROOT / "config" / "costs" / f"{model}_p100.csv",
            "--micro-batch-size", 32, "--blocks-per-stage", blocks]


def filled(rule, blocks, every=1):
    return ["--fill", rule, "--factor-layers", FACTOR_LAYERS * blocks, "--curvature-every", every]


def rehearsed(words, workers, repeat):
    done = subprocess.run([str(w) for w in [*HETURUN, "-w", workers, "hetu", "rehearse", *words, "--repeat", repeat]],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    line = next(line for line in done.stdout.splitlines() if line.startswith("step time"))
    return [float(cell) for cell in line.split()[2:4]]  # predicted, measured


def steps_of(words):
    """Returns the number of steps in a filled plan's cycle."""
    done = subprocess.run([str(w) for w in ["hetu", "schedule", *words, "--lowered", "--format", "json"]],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    print("| model, stages | method | alone | K-FAC behind it | in bubbles | bound | refresh every | rehearsed / bound | "
          "rehearsed / rehearsed bound |\n|---|---|---|---|---|---|---|---|---|")
    for model, stages, blocks in (("bert-base", 4, 1), ("bert-base", 4, 3), ("bert-large", 8, 3)):
        for method in ("gpipe", "1f1b", "chimera"):
            words = words_of(model, method, stages, blocks)
            steps = steps_of([*words, *filled("best", blocks)])
            alone = rehearsed(words, stages, repeat)
            behind = [value / steps for value in rehearsed([*words, *filled("after", blocks, steps)], stages, repeat)]
            inside = [value / steps for value in rehearsed([*words, *filled("best", blocks)], stages, repeat)]
            bound = [value + preconditioning(model, blocks) * stages_per_worker(method) for value in alone]
            print(f"| {model}, {blocks} block(s) on each of {stages} | {method} | {both(alone)} | {both(behind)} | "
                  f"{both(inside)} | {bound[0]:.1f} | {steps} steps | {inside[1] / bound[0]:.3f} | "
                  f"{inside[1] / bound[1]:.3f} |", flush=True)


def both(times):
    return f"{times[0]:.1f}, rehearsed {times[1]:.1f}"


def preconditioning(model, blocks):
    table = (ROOT / "config" / "costs" / f"{model}_p100.csv").read_text().splitlines()
    names, row = table[0].split(","), next(line.split(",") for line in table[1:] if line.startswith("32,"))
    return blocks * float(row[names.index("time_prec")])


def stages_per_worker(method):
    """Returns the number of copies of stages for which a worker multiplies: two for chimera."""
    return 2 if method == "chimera" else 1


if __name__ == "__main__":
    main()
