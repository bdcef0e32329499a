"""The house rules that a pattern or a count can check, one record per rule. `check` runs them all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CODE = (".h", ".cpp", ".cu", ".cuh")
TEXT = (*CODE, ".py", ".cmake", ".txt", ".md", ".yml", ".yaml", ".json", ".toml", ".cff", "run")
LIBRARIES = ("base/", "net/", "graph/", "config/", "ops/", "pipeline/", "ps/", "datasets/", "executor/", "cli/")
BUILD_ONLY = ("nanobind", "onednn-devel-cpu-gomp")  # found by CMake, imported by nothing
SOFT_LINES, HARD_LINES, README_LINES = 400, 600, 40


@dataclass(frozen=True)
class Rule:
    """A rule that forbids lines matching `pattern`, in files that end in `suffixes` and are under `folders`."""

    pattern: str
    message: str
    suffixes: tuple[str, ...] = CODE
    folders: tuple[str, ...] = ("",)
    exempt: str = "$^"  # allowed files, as a pattern over the path


RULES = [
    Rule(r"\b(secure_)?getenv\s*\(", "environment variables are read in config/env.cpp only",
         exempt=r"config/env\.cpp|tests/.*"),
    Rule(r"std::(cout|cerr|clog)\b|(?<![:\w.>])(std::)?(f?printf|puts|putchar)\s*\(|\bfmt::print",
         "libraries do not print: return text, or log()", folders=LIBRARIES,
         exempt=r"base/log\.cpp|datasets/opencv_module\.cpp|(.*/)?(cli|command)[^/]*(/.*)?|.*main\.cpp"),
    Rule(r"^\s*#\s*(if|ifdef|ifndef|elif)\b", "no #if in logic: pairs of sources that CMake chooses",
         exempt=r"ops/scalar_fns\.h|ops/cpu/dnnl_.*"),
    Rule(r"\b(TODO|FIXME|XXX|HACK)\b", "no to-do notes: finish it, or open an issue", suffixes=TEXT),
    Rule(r"(?<![\w.$}])/(root|work|home/\w+|mnt/\w+)/", "a path of one machine", suffixes=TEXT),
    Rule(r"pypi[.]org|pythonhosted[.]org|deb[.]debian[.]org|archive[.]ubuntu[.]com|anaconda[.]org",
         "a package registry's host name: leave the choice to the machine", suffixes=TEXT),
    Rule(r"^\s*using\s+namespace\b", "no using namespace in a header", suffixes=(".h",), folders=(*LIBRARIES, "python/")),
    Rule(r"#\s*include\s*<(spdlog|nlohmann|yaml-cpp|oneapi|nanobind|opencv2)/|#\s*include\s*<(mpi|hdf5|H5\w*)\.h>",
         "a heavy header belongs into one .cpp", suffixes=(".h",), exempt=r"python/src/.*|ops/cpu/dnnl_.*"),
    Rule(r"#\s*include\s*<spdlog/", "spdlog is included in base/log.cpp only", exempt=r"base/log\.cpp"),
    Rule(r"json::parse\s*\((?!bounded_json\()|YAML::Load(?!\(bounded_yaml\()|json::accept",
         "a parser gets its text from bounded_json or bounded_yaml (base/text_file.h), which bound depth and size",
         exempt=r"tests/.*"),
    Rule(r"\bjson\.load\(|\bjson\.loads\([^)]*(read_text|read_bytes|\.read\()",
         "JSON files are read by hetu.files.read_json, which bounds depth and size", suffixes=(".py",),
         folders=("python/hetu/",),
         exempt=r"python/hetu/files\.py|python/hetu/torch/.*"),
    Rule(r"(std::|fs::|filesystem::|::)rename(at2)?\s*\(",
         "files are replaced by replace_file (base/text_file.h), which follows links and writes into devices",
         exempt=r"base/text_file\.cpp|executor/state/checkpoint\.cpp|ps/server/.*|datasets/text_index\.cpp|tests/.*"),
    Rule(r"\bos\.(rename|replace)\s*\(",
         "files are replaced by hetu.files.replaced, which follows links and writes into devices", suffixes=(".py",),
         folders=("python/",),
         exempt=r"python/hetu/files\.py|python/hetu/torch/.*|python/hetu/compat/varuna/checkpoint\.py|python/hetu/sample/folder\.py"),
    Rule(r"\bifstream\b|\bfopen\s*\(|::open\s*\(.*O_RDONLY",
         "a file that somebody names is opened by InputFile or read_text (base/text_file.h), which refuse a FIFO",
         exempt=r"base/.*|net/(wire|transport)/.*|ps/.*|executor/state/.*|datasets/text_index\.cpp|cli/(ps_status|data_check)\.cpp|"
                r"python/src/mpirun_ports\.cpp|docs/.*|tests/.*"),
    Rule(r"\b(with_flushes|with_recompute|with_split_backward|least_send_slots|ample_send_slots)\s*\(",
         "plans are assembled in pipeline/plan only: call computations(), proved_plan() or send_slots_for()",
         exempt=r"pipeline/(plan|ir|generate|lower|verify|simulate)/.*|tests/.*"),
    Rule(r"#\s*include\s*<(ranges|source_location|format)>", "not in g++ 12 or clang-tidy 14"),
]
SELF = r"cmake/lint.*|tests/cmake/lint_test\.py"


def check(root: Path, files: list[str]) -> list[str]:
    """Returns all findings, as `file:line: message`."""
    texts = {f: (root / f).read_text(errors="replace") for f in files if f.endswith(TEXT)}
    return [*by_pattern(texts), *headers(texts), *readmes(texts), *lengths(texts), *orphans(texts), *packages(texts),
            *unchecked(texts), *silent_skips(texts), *links(root, texts)]


def by_pattern(texts: dict[str, str]) -> list[str]:
    found = []
    for rule in RULES:
        pattern, exempt = re.compile(rule.pattern), re.compile(f"{rule.exempt}|{SELF}")
        for file, text in texts.items():
            if not file.endswith(rule.suffixes) or not file.startswith(rule.folders) or exempt.fullmatch(file):
                continue
            found += [f"{file}:{number}: {rule.message}" for number, line in enumerate(text.splitlines(), 1)
                      if pattern.search(line)]
    return found


def headers(texts: dict[str, str]) -> list[str]:
    """Checks that a header begins with its purpose, and has `#pragma once`."""
    found = []
    for file, text in texts.items():
        if file.endswith(".h"):
            if not text.startswith("//"):
                found.append(f"{file}:1: a header opens with one to four lines: what it owns, who reads it")
            if "#pragma once" not in text:
                found.append(f"{file}:1: no #pragma once")
    return found


def readmes(texts: dict[str, str]) -> list[str]:
    """Checks that READMEs exist and have at most 40 lines: in every top folder with sources, in each of its subfolders where
    it is split, and in every package inside python/hetu."""
    folders = {f.split("/")[0] for f in texts if "/" in f and f.endswith((*CODE, ".py"))} - {"docs"}
    parted = [f for f in texts if re.match(r"(net|pipeline|executor)/\w+/", f) and f.endswith(CODE)]
    folders |= {"/".join(f.split("/")[:2]) for f in parted}
    folders |= {f.removesuffix("/__init__.py") for f in texts if re.fullmatch(r"python/hetu/.+/__init__\.py", f)}
    found = [f"{d}/: no README.md (what it owns, what it may include, how to add one more)"
             for d in sorted(folders) if f"{d}/README.md" not in texts]
    for file, text in texts.items():
        lines = len(text.splitlines())
        if re.fullmatch(r".+/README\.md", file) and lines > README_LINES:
            found.append(f"{file}: {lines} lines; a folder's README has at most {README_LINES}")
    return found


def lengths(texts: dict[str, str]) -> list[str]:
    return [f"{file}: {lines} lines; cut it along an idea (at most {HARD_LINES}, better {SOFT_LINES})"
            for file, lines in sizes(texts) if lines > HARD_LINES]


def sizes(texts: dict[str, str]) -> list[tuple[str, int]]:
    return [(f, len(t.splitlines())) for f, t in texts.items() if f.endswith((*CODE, ".py"))]


def orphans(texts: dict[str, str]) -> list[str]:
    """Checks that every source, and every library's header, is named in a CMakeLists.txt: that of its top folder, or another
    by its full path."""
    named: dict[str, set[str]] = {}
    for file, text in texts.items():
        if file.endswith("CMakeLists.txt"):
            words = set(re.findall(r"[\w./-]+", re.sub(r"#[^\n]*", "", text)))
            named.setdefault(file.split("/")[0], set()).update(words)
    everywhere = set().union(*named.values())

    def is_named(file: str) -> bool:
        return any(file.endswith("/" + w) for w in named.get(file.split("/")[0], ())) or f"/{file}" in everywhere

    return [f"{file}: named in no CMakeLists.txt" for file in texts
            if (file.endswith((".cpp", ".cu")) or (file.endswith(".h") and file.startswith(LIBRARIES)))
            and not is_named(file)]


# Calls of CUDA's libraries that return a status, except those that return its text; and launches.
CUDA_CALL = re.compile(r"\b(?:cuda(?!GetError)[A-Z]\w*|cublas(?!LtGetStatus)\w*[A-Z]\w*|cudnn[A-Z]\w*|"
                       r"nccl(?!GetError)[A-Z]\w*)\s*\(")
LAUNCH = re.compile(r">>>\s*\(")
TAKEN = re.compile(r"(?:\b(?:check|let_go)\(|static_cast<void>\(|(?:cudaError|cublasStatus|cudnnStatus)_t \w+ =)\s*$")
CHECKED = re.compile(r"[^;]*;\s*check\(cudaGetLastError\(\)")


def unchecked(texts: dict[str, str]) -> list[str]:
    """Checks that every call of CUDA's libraries is checked, and that every launch is followed by a check of the last error.
    """
    found = []
    for file, text in texts.items():
        if not file.endswith(CODE) or "cuda" not in file:
            continue
        bare_text = re.sub(r"//[^\n]*|\"[^\"\n]*\"", lambda m: " " * len(m[0]), text)
        at = [m.start() for m in CUDA_CALL.finditer(bare_text) if not TAKEN.search(bare_text[:m.start()])]
        at += [m.start() for m in LAUNCH.finditer(bare_text) if not CHECKED.match(bare_text, m.end())]
        found += [f"{file}:{text.count(chr(10), 0, i) + 1}: a CUDA call that nobody checks: check(CALL, WHAT)"
                  for i in sorted(at)]
    return found


SKIPS = re.compile(r"\bskip(?:If|Unless|Test)?\(|\.SkipTest\(")
VERBOSE = re.compile(r"unittest\.main\([^\n]*verbosity=2")


def silent_skips(texts: dict[str, str]) -> list[str]:
    """Checks that a test that may be skipped prints the reason. unittest prints it only if it is verbose."""
    return [f"{file}:1: it skips tests and prints no reason: unittest.main(verbosity=2)" for file, text in texts.items()
            if file.startswith("tests/") and file.endswith("_test.py") and SKIPS.search(text) and "unittest.main(" in text
            and not VERBOSE.search(text)]


def packages(texts: dict[str, str]) -> list[str]:
    """Checks that INSTALL.md, environment.yml, pyproject.toml and CMake name exactly the packages in cmake/packages.txt."""
    rows = [line.split(None, 4) for line in texts.get("cmake/packages.txt", "").splitlines()
            if line and not line.startswith("#")]
    found = [f"cmake/packages.txt: '{' '.join(r)}' needs group, name, conda, proof, reason" for r in rows if len(r) < 5]
    guide, conda = texts.get("INSTALL.md", ""), texts.get("environment.yml", "")
    found += [f"INSTALL.md: does not name the package {bare(row[1])}" for row in rows
              if row[0] in ("core", "full", "pypi", "pypi-pip") and f"`{bare(row[1])}`" not in guide]
    imported = set(re.findall(r"^\s*(?:import|from)\s+(\w+)", "\n".join(t for f, t in texts.items()
                                                                        if f.endswith(".py")), re.M))
    found += [f"cmake/packages.txt: no script imports {row[3][3:]}" for row in rows
              if row[0] == "pypi" and row[3][3:] not in imported and bare(row[1]) not in BUILD_ONLY]
    wanted = {row[2] for row in rows if row[2] != "-"}
    have = set(re.findall(r"^  - ([^\s#]+)", conda, re.M)) - {"conda-forge"}
    found += [f"environment.yml: lacks {name}" for name in sorted(wanted - have)]
    found += [f"environment.yml: names {name}, which cmake/packages.txt does not" for name in sorted(have - wanted)]
    asked = re.findall(r"^hetu_core\(\S+ (\S+?)(?: TRAINING)?\)", texts.get("cmake/HetuParts.cmake", ""), re.M)
    found += [f"cmake/HetuParts.cmake: names {name}, which cmake/packages.txt does not have as core"
              for name in asked if ["core", name] not in [row[:2] for row in rows]]
    return [*found, *requirements(rows, texts.get("pyproject.toml", ""))]


def requirements(rows: list[list[str]], project: str) -> list[str]:
    """Checks that cmake/packages.txt has every requirement of pyproject.toml with its version range, and that pyproject.toml
    asks for every package that pip needs."""
    listed = {row[1] for row in rows if row[0].startswith("pypi")}
    tables = project.split("[tool.", 1)[0]
    lists = re.findall(r"^(?!dynamic|classifiers|keywords|authors)[\w-]+ = \[([^\]]*)\]", tables, re.M)
    named = {name for text in lists for name in re.findall(r'"([^"]+)"', text)}
    found = [f"pyproject.toml: asks for {name}, which cmake/packages.txt does not have" for name in sorted(named - listed)]
    fetched = {row[1] for row in rows if row[0] == "pypi-pip"} if project else set()
    return found + [f"pyproject.toml: does not ask for {name}" for name in sorted(fetched - named)]


def links(root: Path, texts: dict[str, str]) -> list[str]:
    """Checks that links to files of the tree have a target."""
    return [f"{file}: the link to {target} leads nowhere" for file, text in texts.items() if file.endswith(".md")
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
            if not (root / file).parent.joinpath(target).exists()]


def bare(requirement: str) -> str:
    return re.split(r"[<>=!;]", requirement)[0]
