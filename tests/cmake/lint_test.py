"""The lint finds violations: for each rule, a small tree that breaks it and one that doesn't."""

import graphlib
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))

import lint_classes  # noqa: E402
import lint_imports  # noqa: E402
import lint_layers  # noqa: E402
import lint_prose  # noqa: E402
import lint_python  # noqa: E402
import lint_rules  # noqa: E402

GOOD_HEADER = "// Contents.\n#pragma once\n"


def findings(files: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        names = sorted(files)
        return [*lint_layers.check_includes(root, names), *lint_layers.check_links(root, names),
                *lint_layers.check_cycles(root, names), *lint_imports.check(root, names),
                *lint_rules.check(root, names), *lint_classes.check(root, names),
                *lint_prose.check(root, names), *lint_python.check(root, names)]


class Layers(unittest.TestCase):
    def include(self, includer: str, included: str) -> list[str]:
        found = findings({includer: f'#include "{included}"\n', included: GOOD_HEADER})
        return [f for f in found if "may not include" in f]

    def test_every_pair_of_layers_is_judged_as_in_the_table(self):
        for mine, allowed in lint_layers.LAYERS.items():
            for other in lint_layers.LAYERS:
                with self.subTest(includer=mine, included=other):
                    bad = self.include(f"{mine}/x.cpp", f"{other}/y.h")
                    self.assertEqual(bool(bad), other != mine and other not in allowed, bad)

    def test_the_table_has_no_cycle(self):
        graphlib.TopologicalSorter(lint_layers.LAYERS).prepare()  # throws at a cycle
        self.assertEqual(set(lint_layers.LAYERS), set(lint_layers.LAYERS).union(*lint_layers.LAYERS.values()))

    def test_units_in_a_circle_are_found(self):
        circle = {"ops/a.h": GOOD_HEADER + '#include "ops/b.h"\n', "ops/b.h": GOOD_HEADER,
                  "ops/b.cpp": '#include "ops/b.h"\n#include "ops/c.h"\n', "ops/c.h": GOOD_HEADER + '#include "ops/a.h"\n'}
        self.assertEqual([f for f in findings(circle) if "circle" in f],
                         ["ops/a -> ops/b -> ops/c -> ops/a: these include each other in a circle"])
        del circle["ops/b.cpp"]
        self.assertEqual([f for f in findings(circle) if "circle" in f], [])
        inside = {"ps/a.h": GOOD_HEADER, "ps/a_impl.h": GOOD_HEADER + '#include "ps/a.h"\n',
                  "ps/a.cpp": '#include "ps/a_impl.h"\n'}
        self.assertEqual([f for f in findings(inside) if "circle" in f], [])

    def test_a_source_beside_the_folders_is_found(self):
        self.assertTrue([f for f in findings({"pipeline/a.h": GOOD_HEADER}) if "none of its folder's folders" in f])

    def test_groups_is_a_layer_of_its_own(self):
        self.assertEqual(lint_layers.layer_of("pipeline/groups.h"), "pipeline/groups")
        self.assertEqual(lint_layers.layer_of("pipeline/groups/ring.cpp"), "pipeline/groups")
        self.assertIsNone(lint_layers.layer_of("pipeline/groups_of_x.h"))
        self.assertFalse(self.include("ps/coordinator/x.cpp", "pipeline/groups.h"))
        self.assertTrue(self.include("ps/coordinator/x.cpp", "pipeline/lower/lower.h"))

    def test_relative_and_dead_includes_are_found(self):
        found = findings({"ops/a.cpp": '#include "b.h"\n', "ops/b.h": GOOD_HEADER})
        self.assertTrue(any("write its path from the root" in f for f in found), found)

    def test_every_pair_of_python_packages_is_judged_as_in_the_table(self):
        packages = {f: v for f, v in lint_layers.LAYERS.items() if f.startswith("python")}
        for mine, allowed in packages.items():
            for other in packages.keys() - {"python"}:
                module = f"{other.removeprefix('python/').replace('/', '.')}"
                for line in (f"from {module} import y\n", f"import {module}.y\n", f"from {module}.y import what\n",
                             f"def f():\n    from {module} import y\n"):
                    with self.subTest(importer=mine, imported=other, line=line):
                        found = findings({f"{mine}/x.py": line, f"{other}/y.py": "", f"{other}/__init__.py": ""})
                        self.assertEqual(bool([f for f in found if "may not import" in f]),
                                         other != mine and other not in allowed, found)

    def test_the_core_does_not_import_what_belongs_to_other_systems(self):
        importers = {folder for folder, allowed in lint_layers.LAYERS.items() if "python/hetu/compat" in allowed}
        self.assertEqual(importers, {"python/hetu/varuna", "python/hetu/launcher", "python", "tests"})

    def test_modules_in_a_circle_are_found(self):
        circle = {"python/hetu/a.py": "from hetu import b\n", "python/hetu/b.py": "def f():\n    from hetu.c import x\n",
                  "python/hetu/c.py": "import hetu.a\n", "python/README.md": "", "python/hetu/__init__.py": ""}
        self.assertEqual(findings(circle), ["python/hetu/a.py -> python/hetu/b.py -> python/hetu/c.py -> python/hetu/a.py: "
                                            "these import each other in a circle"])
        types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hetu import a\n"
        self.assertEqual(findings({**circle, "python/hetu/c.py": types}), findings(circle))
        self.assertEqual(findings({**circle, "python/hetu/c.py": "from typing import Any\n"}), [])

    def test_link_lists_obey_the_table(self):
        lists = {"graph/CMakeLists.txt": "hetu_library(base DIR base SOURCES a.cpp)\n"
                                         "hetu_library(graph DIR graph SOURCES b.cpp DEPS hetu::base)",
                 "ops/CMakeLists.txt": "hetu_library(ops DIR ops SOURCES c.cpp DEPS hetu::graph hetu::base)"}
        self.assertFalse([f for f in findings(lists) if "may not link" in f])
        lists["graph/CMakeLists.txt"] += "\ntarget_link_libraries(hetu_graph PUBLIC hetu::ops)"
        self.assertTrue([f for f in findings(lists) if "hetu_graph (graph) may not link hetu::ops (ops)" in f])


class Rules(unittest.TestCase):
    BAD = {
        "getenv": ("ops/a.cpp", 'auto x = std::getenv("X");'),
        "printing": ("executor/loop/a.cpp", "std::cout << 1;"),
        "printf": ("graph/a.cpp", 'std::printf("x");'),
        "preprocessor": ("executor/loop/a.cpp", "#ifdef HAVE_MPI"),
        "to-do": ("python/a.py", "# TO" + "DO later"),
        "machine path": ("docs/a.md", "see /root" + "/hetu/x"),
        "registry": ("run", "curl https://pypi." + "org/simple"),
        "using": ("graph/a.h", GOOD_HEADER + "using namespace std;"),
        "heavy": ("graph/a.h", GOOD_HEADER + "#include <nlohmann/json.hpp>"),
        "spdlog": ("ops/a.cpp", "#include <spdlog/spdlog.h>"),
        "ranges": ("ops/a.cpp", "#include <ranges>"),
        "unbounded JSON": ("executor/loop/a.cpp", "const auto in = nlohmann::json::parse(text);"),
        "unbounded YAML": ("config/a.cpp", "root = YAML::Load(text);"),
        "YAML file": ("config/a.cpp", "root = YAML::LoadFile(path);"),
        "unbounded JSON in Python": ("python/hetu/a.py", "x = json.loads(path.read_text())"),
        "JSON file in Python": ("python/hetu/a.py", "x = json.load(file)"),
        "own rename": ("executor/job/a.cpp", "std::rename(beside.c_str(), path.c_str());"),
        "own rename in Python": ("python/hetu/a.py", "os.replace(beside, path)"),
        "waits for a FIFO": ("config/a.cpp", "std::ifstream file(path);"),
        "opens a FIFO": ("datasets/a.cpp", "const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);"),
        "a plan elsewhere": ("executor/job/a.cpp", "plan = with_recompute(plan);"),
        "no comment": ("ops/a.h", "#pragma once\n"),
        "no guard": ("ops/a.h", "// Contents.\n"),
        "long": ("ops/a.cpp", "\n" * 601),
        "orphan": ("ops/lost.cpp", "int x;"),
        "unchecked CUDA": ("ops/cuda/a.cpp", "cudaFree(x);"),
        "unchecked status": ("ops/cuda/a.cpp", "if (cublasLtCreate(&x) != 0) return;"),
        "silent skip": ("tests/a_test.py", "a = unittest.skipIf(X, why)\nunittest.main()"),
        "silent skip with arguments": ("tests/a_test.py", "self.skipTest(why)\nunittest.main(argv=[])"),
        "unchecked launch": ("ops/cuda/a.h", GOOD_HEADER + "each<<<1, 2>>>(x);\nreturn;"),
    }
    GOOD = {
        "environment": ("config/env.cpp", 'auto x = std::getenv("X");'),
        "snprintf": ("graph/a.cpp", "std::snprintf(buffer, 8, \"x\");"),
        "heavy in source": ("graph/a.cpp", "#include <nlohmann/json.hpp>"),
        "url with work": ("docs/a.md", "https://example.org/work/x and build/work/x"),
        "header": ("ops/a.h", GOOD_HEADER),
        "bounded JSON": ("executor/loop/a.cpp", "const auto in = nlohmann::json::parse(bounded_json(text, path));"),
        "bounded YAML": ("config/a.cpp", "root = YAML::Load(bounded_yaml(text, path));"),
        "JSON of a message": ("python/hetu/a.py", "told = json.loads(payload)"),
        "checked CUDA": ("ops/cuda/a.h", GOOD_HEADER + 'each<<<1, 2>>>(x);\n'
                         'check(cudaGetLastError(), "a");\ncheck(\n  cudaFree(x), "b");'),
        "a plan in its place": ("pipeline/plan/a.cpp", "plan = with_recompute(plan);"),
        "skip with its reason": ("tests/a_test.py", "raise unittest.SkipTest(why)\nunittest.main(verbosity=2)"),
        "CUDA's words": ("ops/cuda/a.cpp", "fail(cudaGetErrorString(status)); let_go(cudaFree(x));"),
    }

    def of(self, file: str, text: str) -> list[str]:
        top = file.split("/")[0]
        lists = {f"{top}/CMakeLists.txt": "a.cpp a.h env.cpp"} if "/" in file else {}
        return [f for f in findings({file: text, **lists}) if f.startswith(file)]

    def test_each_rule_finds_its_case(self):
        for name, (file, text) in self.BAD.items():
            with self.subTest(name):
                self.assertEqual(len(self.of(file, text)), 1, self.of(file, text))

    def test_what_is_allowed_passes(self):
        for name, (file, text) in self.GOOD.items():
            with self.subTest(name):
                self.assertEqual(self.of(file, text), [])

    def test_every_pattern_has_a_case_that_breaks_it(self):
        for rule in lint_rules.RULES:
            hits = [n for n, (file, text) in self.BAD.items() if any(rule.message in f for f in self.of(file, text))]
            self.assertTrue(hits, rule.message)

    def test_readme_of_a_folder(self):
        self.assertTrue(any("no README.md" in f for f in findings({"ops/a.cpp": ""})))
        self.assertTrue(any("pipeline/ir/: no README.md" in f for f in findings({"pipeline/ir/a.cpp": ""})))
        self.assertTrue(any("python/hetu/x/: no README.md" in f for f in findings({"python/hetu/x/__init__.py": ""})))
        long = findings({"ops/a.cpp": "", "ops/README.md": "x\n" * 41})
        self.assertTrue(any("41 lines" in f for f in long))


class Classes(unittest.TestCase):
    LISTS = {"ops/CMakeLists.txt": "a.h a.cpp b.cpp", "ops/README.md": ""}

    def of(self, files: dict[str, str]) -> list[str]:
        return [f for f in findings({**files, **self.LISTS}) if "lines with its members" in f]

    def header(self, lines: int) -> str:
        return GOOD_HEADER + "class A final : public B {\n" + " public:\n" * (lines - 2) + "};\n"

    def test_a_class_is_its_definition_and_its_members_in_all_files_of_a_folder(self):
        member = "std::vector<int> A::f(int x,\n                 int y) {\n" + "  g();\n" * 196 + "}\n\n"  # 199 lines
        files = {"ops/a.h": self.header(92), "ops/a.cpp": member, "ops/b.cpp": member}
        self.assertEqual(self.of(files), [])
        files["ops/b.cpp"] += "// A reason.\n"  # comments don't count
        self.assertEqual(self.of(files), [])
        files["ops/b.cpp"] += "A::A() : x_(1) {}\n"
        self.assertEqual(self.of(files), ["ops: class A has 491 lines with its members; cut it along an idea (at most 490)"])

    def test_free_functions_and_classes_of_other_files_do_not_count(self):
        body = " {\n" + "  g();\n" * 400 + "}\n"
        own = "class A {\n" + "  int x;\n" * 300 + "};\n"
        files = {"ops/a.h": self.header(102), "ops/a.cpp": "int free(A& a)" + body + "void Other::f()" + body,
                 "ops/b.cpp": own}
        self.assertEqual(self.of(files), [])
        files["ops/b.cpp"] += "void A::f()" + body
        self.assertEqual(len(self.of(files)), 1)
        self.assertTrue(self.of(files)[0].startswith("ops/b.cpp: class A has 704 lines"))


class PythonSizes(unittest.TestCase):
    def of(self, *texts: str) -> list[str]:
        files = {f"python/{name}.py": text for name, text in zip("abc", texts, strict=False)}
        return findings({**files, "python/README.md": ""})

    def test_a_class_counts_with_its_base_classes(self):
        first = "class A:\n" + "    x = 1\n" * 245  # 246 lines
        second = "from a import A\n\n\nclass B(A):\n" + "    y = 1\n" * 243  # 244 lines
        self.assertEqual(self.of(first, second), [])
        explained = second.replace("(A):\n", '(A):\n    """A class.\n\n    It is long."""\n    # A comment.\n')
        self.assertEqual(self.of(first, explained), [])
        message = "class B has 491 lines with its base classes; cut it along an idea (at most 490)"
        self.assertEqual(self.of(first, second + "    z = 1\n"), [f"python/b.py:4: {message}"])
        generic = second.replace("(A)", "(a.A, Generic[T])").replace("from a import A", "import a")
        self.assertEqual(self.of(first, generic + "    z = 1\n"), [f"python/b.py:4: {message}"])
        third = "from b import B\n\n\nclass C(B):\n    pass\n"
        self.assertEqual(self.of(first, second, third), [f"python/c.py:4: {message.replace('B has 491', 'C has 492')}"])

    def test_a_function_has_60_lines(self):
        body = "    x = 1\n" * 60
        self.assertEqual(self.of("def f():\n" + body), [])
        explained = 'def f(\n    a,\n):\n    """Does it.\n\n    In steps."""\n    # Each sets x.\n'
        self.assertEqual(self.of(explained + body), [])
        for start in ("def f():\n", "async def f():\n", "class A:\n    def f(self):\n"):
            inner = "".join(" " * (4 * start.startswith("class")) + line for line in body.splitlines(True))
            found = self.of(start + inner + inner.splitlines(True)[0])
            self.assertEqual([f.partition(": ")[2] for f in found], ["f has 61 lines; cut it along an idea (at most 60)"])

    def test_a_call_must_pass_6_arguments(self):
        for good in ("a, b, c, d, e, f", "self, a, b, c, d, e, f", "a, b, c, d, e, /, f, g=1, *rest, h=2, **more",
                     "a, b, c, *, d, e, f, g=1"):
            self.assertEqual(self.of(f"def f({good}):\n    pass\n"), [], good)
        for bad in ("a, b, c, d, e, f, g", "self, a, b, c, d, e, f, g", "a, b, c, /, d, e, f, *, g",
                    "a, b, c, *, d, e, f, g, h=1"):
            self.assertEqual(self.of(f"def f({bad}):\n    pass\n"), [
                "python/a.py:1: f has 7 parameters without a default; group them in a class (at most 6)"], bad)


class Prose(unittest.TestCase):
    def starts(self, name: str, text: str) -> list[str]:
        return [f for f in findings({name: text}) if "a sentence begins with" in f]

    def test_a_comment_without_a_subject_is_found(self):
        self.assertEqual(self.starts("ops/a.h", "// Contents.\n#pragma once\n/// Whether it is kept.\nbool is_kept();\n"),
                         ["ops/a.h:3: a sentence begins with 'Whether it is kept.': begin with a verb or a noun"])
        self.assertTrue(self.starts("ops/a.cpp", "int a = 0;  // of all\nint b = 0;  // What is left.\n"))
        self.assertTrue(self.starts("ops/a.cpp", "int a = 0;  // rows\n// How many.\nint b = 0;\n"))
        self.assertTrue(self.starts("python/a.py", 'def f():\n    """What is left."""\n'))
        self.assertTrue(self.starts("python/a.py", "x = 1\n# Of all pipelines.\ny = 2\n"))
        self.assertEqual(self.starts("ops/a.cpp", "// Returns the rows.\n// What follows is the same comment.\nint a();\n"),
                         ["ops/a.cpp:1: a sentence begins with 'What follows is the': begin with a verb or a noun"])

    def test_other_comments_are_not(self):
        for name, text in (("ops/a.cpp", "// Returns the rows.\n// That order is kept.\nint a();\n"),
                           ("ops/a.cpp", 'const char* a = "// What a string";\n'),
                           ("python/a.py", '"""Rows.\n\nWhat is a row? The text below says it."""\n')):
            self.assertEqual(self.starts(name, text), [], text)

    def test_a_long_cell_is_found_outside_code(self):
        long = "| a | " + "word " * 41 + "|\n"
        self.assertTrue([f for f in findings({"docs/a.md": long}) if "41 words" in f])
        self.assertFalse([f for f in findings({"docs/a.md": f"```\n{long}```\n"}) if "words" in f])


class Packages(unittest.TestCase):
    TABLE = "core g++ cxx-compiler cmd:c++ compiles\npypi numpy>=1.24 numpy>=1.24 py:numpy arrays\n"

    def test_install_page_and_conda_must_name_the_same(self):
        conda = "dependencies:\n  - cxx-compiler\n  - numpy>=1.24\n"
        guide = "`g++` `numpy`"
        files = {"cmake/packages.txt": self.TABLE, "environment.yml": conda, "INSTALL.md": guide,
                 "python/a.py": "import numpy as np\n", "python/README.md": ""}
        self.assertEqual(findings(files), [])
        self.assertIn("INSTALL.md: does not name the package g++", findings({**files, "INSTALL.md": "`numpy`"}))
        short = {**files, "environment.yml": conda.replace("  - numpy>=1.24\n", "")}
        self.assertIn("environment.yml: lacks numpy>=1.24", findings(short))
        extra = findings({**files, "environment.yml": conda + "  - boost\n"})
        self.assertIn("environment.yml: names boost, which cmake/packages.txt does not", extra)
        unused = findings({**files, "python/a.py": ""})
        self.assertIn("cmake/packages.txt: no script imports numpy", unused)

    def test_what_pip_fetches_is_listed_and_asked(self):
        files = {"cmake/packages.txt": self.TABLE + "pypi-pip wheel>=2 wheel>=2 py:wheel wheels\n",
                 "INSTALL.md": "`g++` `numpy` `wheel`",
                 "environment.yml": "  - cxx-compiler\n  - numpy>=1.24\n  - wheel>=2\n",
                 "python/a.py": "import numpy as np\n", "python/README.md": "",
                 "pyproject.toml": 'requires = ["wheel>=2"]\ndynamic = ["version"]\ntrain = ["numpy>=1.24"]\n'
                                   '[tool.ruff]\nsrc = ["a"]\n'}
        self.assertEqual(findings(files), [])
        for change, message in [(("wheel>=2", "wheel>=3"), "asks for wheel>=3, which cmake/packages.txt does not have"),
                                (("wheel>=2", "wheel>=3"), "does not ask for wheel>=2"),
                                (("numpy>=1.24", "numpy"), "asks for numpy, which cmake/packages.txt does not have")]:
            bad = {**files, "pyproject.toml": files["pyproject.toml"].replace(*change)}
            self.assertIn(f"pyproject.toml: {message}", findings(bad))

    def test_what_cmake_says_is_missing_is_a_core_package(self):
        parts = "hetu_core(a g++)\nhetu_core(b numpy>=1.24)\n"
        found = findings({"cmake/packages.txt": self.TABLE, "cmake/HetuParts.cmake": parts})
        self.assertEqual([f for f in found if "Parts" in f],
                         ["cmake/HetuParts.cmake: names numpy>=1.24, which cmake/packages.txt does not have as core"])

    def test_links_lead_somewhere(self):
        pages = {"docs/a.md": "[b](b.md#part) [site](https://example.org/x) [up](../README.md)", "README.md": ""}
        self.assertEqual(findings(pages), ["docs/a.md: the link to b.md leads nowhere"])
        self.assertEqual(findings({**pages, "docs/b.md": ""}), [])


if __name__ == "__main__":
    unittest.main()
