"""Lint. Without options: the fast part, which only needs Python (layers, house rules, and formatting where the pinned
clang-format is installed). `--all` adds spelling, the reading ease of pages,
the subjects of new commits, the self-containment of headers, clang-tidy on changed files, ruff and mypy.
`--format` formats in place. Run by `./run lint`, `./run format` and, without options, as a test."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lint_classes
import lint_imports
import lint_layers
import lint_prose
import lint_python
import lint_reading
import lint_rules

ROOT = Path(__file__).resolve().parent.parent
SUBJECT = 72  # characters of a commit's subject
# Words that codespell takes for mistakes: names of ours, two surnames, and mistakes that tests make on purpose.
MEANT = "figurestyle,kno,toom,caf,foward,wrokers,wroker,wiat,gird,wieght,statics,chekc"
PINNED = 14  # the major version of clang-format and clang-tidy in Debian 12; other versions format and report differently


def tracked() -> list[str]:
    """Returns the tree's files: those that git tracks or would add. In an unpacked archive, all files outside build folders.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        names = subprocess.run(command, capture_output=True, text=True, check=False)
        if names.returncode == 0:
            return sorted({n for n in names.stdout.splitlines() if (ROOT / n).is_file()})
    skip = re.compile(r"(^|/)(build[^/]*|\.venv|\.git|__pycache__|\.(mypy|ruff)_cache)/")
    paths = (str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file())
    return sorted(p for p in paths if not skip.search(p))


def tool(name: str) -> str | None:
    """Returns the path of a tool in this environment, or in PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def pinned(name: str) -> str | None:
    """Returns the path of a tool if its major version is the pinned one. Otherwise prints the reason and returns None."""
    path = tool(name)
    if path is None:
        print(f"lint: {name} skipped: not installed (./run lint installs it)")
        return None
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    major = re.search(r"version (\d+)", version)
    if major is None or int(major[1]) != PINNED:
        print(f"lint: {name} skipped: version {major[1] if major else '?'}, the sources are kept by {PINNED}")
        return None
    return path


def run(title: str, command: list[str]) -> bool:
    """Runs a check. Shows its output if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"lint: {title}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def clang_format(files: list[str], in_place: bool) -> bool:
    path = pinned("clang-format")
    mode = ["-i"] if in_place else ["--dry-run", "--Werror", "--ferror-limit=1"]
    return path is None or run("clang-format", [path, *mode, *files])


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout


def fork(base: str | None) -> str:
    """Returns the commit where this branch left `base` (default: the clone's origin, or the last commit)."""
    for candidate in [base] if base else ["origin/HEAD", "HEAD~1"]:
        found = git("merge-base", "HEAD", candidate).strip()
        if found and (base or found != git("rev-parse", "HEAD").strip()):
            return found
    return "HEAD"


def changed(base: str | None) -> set[str]:
    """Returns the files that differ from fork(base)."""
    return set(git("diff", "--name-only", fork(base)).split())


def each_alone(build: Path) -> Path:
    """Returns a folder with the build's commands in a form for clang: without headers that gcc has precompiled, and with one
    source at a time."""
    folder = build / "lint"
    folder.mkdir(exist_ok=True)
    text = re.sub(r" -Winvalid-pch| -fpch-preprocess| -include \S*/cmake_pch\.hxx", "",
                  (build / "compile_commands.json").read_text())
    commands = []
    for one in json.loads(text):
        together = one["file"]
        sources = [together]
        if re.search(r"/unity_\d+_cxx\.cxx$", together):
            sources = re.findall(r'^#include "(.*)"', Path(together).read_text(), re.M)
        commands += [one | {"file": source, "command": one["command"].replace(together, source)} for source in sources]
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return folder


def clang_tidy(build: Path, files: list[str]) -> bool:
    path = pinned("clang-tidy")
    if path is None or not files:
        if path:
            print("lint: clang-tidy: no C++ file changed")
        return True
    build = each_alone(build)
    # xargs uses all processors and reports the failure of any command.
    command = ["xargs", "-n", "1", "-P", str(os.cpu_count() or 1), path, "--quiet", "-p", str(build)]
    done = subprocess.run(command, input="\n".join(files), cwd=ROOT, text=True, capture_output=True, check=False)
    print(f"lint: clang-tidy on {len(files)} changed files: {'ok' if done.returncode == 0 else 'FAILED'}")
    if done.returncode != 0:
        print(done.stdout)
    return done.returncode == 0


def python(files: list[str], in_place: bool) -> bool:
    ruff, mypy = tool("ruff"), tool("mypy")
    ok = True
    if ruff is None or mypy is None:
        print("lint: ruff and mypy skipped: not installed (./run lint installs them)")
    elif in_place:
        ok = run("ruff", [ruff, "check", "--fix", *files])
    else:
        ok = run("ruff", [ruff, "check", *files]) & run("mypy", [mypy])
    return ok


def subjects(base: str | None) -> bool:
    """Checks the subjects of the commits since this branch left `base` (see changed())."""
    found = []
    for line in git("log", "--format=%h %s", f"{fork(base)}..HEAD").splitlines():
        name, _, subject = line.partition(" ")
        if len(subject) > SUBJECT:
            found.append(f"commit {name}: a subject of {len(subject)} characters, at most {SUBJECT}: {subject}")
        if re.search(r"(?<![\w.])/(work|tmp|root|home)/", subject):
            found.append(f"commit {name}: a path of one machine in the subject: {subject}")
    print(*found, f"lint: subjects of commits: {'FAILED' if found else 'ok'}", sep="\n")
    return not found


def spelling(files: list[str]) -> bool:
    path = tool("codespell")
    if path is None:
        print("lint: codespell skipped: not installed (./run lint installs it)")
        return True
    texts = [f for f in files if (f.endswith(lint_rules.TEXT) or f == "run") and not f.startswith("tests/fixtures/")]
    return run("codespell", [path, "--ignore-words-list", MEANT, *texts])


def reading(files: list[str]) -> bool:
    found = lint_reading.check(ROOT, files)
    if found is None:
        print("lint: reading ease skipped: pyphen is not installed (./run lint installs it)")
        return True
    print(*found, f"lint: reading ease of pages: {'FAILED' if found else 'ok'}", sep="\n")
    return not found


def house(files: list[str]) -> bool:
    found = [*lint_layers.check_includes(ROOT, files), *lint_layers.check_links(ROOT, files),
             *lint_layers.check_cycles(ROOT, files), *lint_imports.check(ROOT, files),
             *lint_rules.check(ROOT, files), *lint_classes.check(ROOT, files),
             *lint_prose.check(ROOT, files), *lint_python.check(ROOT, files)]
    for line in found:
        print(line)
    for name, lines in lint_rules.sizes({f: (ROOT / f).read_text(errors="replace") for f in files
                                         if f.endswith(lint_rules.TEXT)}):
        if lint_rules.SOFT_LINES < lines <= lint_rules.HARD_LINES:
            print(f"lint: note: {name} has {lines} lines; {lint_rules.SOFT_LINES} is the aim")
    print(f"lint: layers and house rules: {f'{len(found)} findings' if found else 'ok'}")
    return not found


def runs_python(name: str) -> bool:
    """Returns true if a file without a suffix is a Python script."""
    if "." in Path(name).name:
        return False
    with (ROOT / name).open("rb") as file:
        return b"python" in file.readline(40)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--all", action="store_true")
    options.add_argument("--format", action="store_true")
    options.add_argument("--build", type=Path, default=ROOT / "build", help="a configured build folder")
    options.add_argument("--base", help="clang-tidy sees what changed since this commit")
    options.add_argument("--tidy-all", action="store_true", help="clang-tidy on every file")
    chosen = options.parse_args()
    files = tracked()
    sources = [f for f in files if f.endswith(lint_rules.CODE)]
    scripts = [f for f in files if f.endswith(".py") or runs_python(f)]
    ok = clang_format(sources, chosen.format)
    if chosen.format:
        return 0 if ok & python(scripts, in_place=True) else 1
    ok &= house(files)
    if chosen.all:
        since = set(sources) if chosen.tidy_all else changed(chosen.base)
        ok &= python(scripts, in_place=False)
        ok &= spelling(files) & reading(files) & subjects(chosen.base)
        ok &= run("every header compiles alone", ["cmake", "--build", str(chosen.build), "--target", "check_headers"])
        # tests/torch_device needs PyTorch's headers, which the build folder doesn't know.
        ok &= clang_tidy(chosen.build, [f for f in sources if f.endswith(".cpp") and f in since
                                        and not f.startswith("tests/torch_device/")])
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
