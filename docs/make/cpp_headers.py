"""C++ headers as pages: per folder a page, per header its opening comment, per declaration its `///` comment and its code.

The reader is a small one, for headers in the form that clang-format and lint give them: a declaration ends with a line that
ends with `;` or `}` outside all brackets. Bodies of functions and private members are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

# Folders whose headers programs include (docs/cpp.md), with what these headers include.
FOLDERS = ["base", "config", "graph", "ops", "pipeline/*", "net/transport", "datasets", "ps/client", "ps/coordinator",
           "ps/server", "executor/*"]

# The first line of a function with a body, up to its qualifiers; a lambda, or the brace of a type, is no such line.
BODY = re.compile(r"(?! *(?:class|struct|enum|union)\b)(?!.*= \[)"
                  r"(.*?\)(?: const| noexcept| override| final)*(?: -> .*?)?)(?: : .*)? \{")

# Lines between declarations.
SKIPPED = re.compile(r"#(?:include|pragma|if|else|endif|undef)|(?:inline )?namespace [\w:]* ?\{$|\}  // namespace|//")


@dataclass
class Declaration:
    """A declaration, or several that stand together under one comment."""

    comment: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)


def folders(root: Path) -> list[str]:
    """Returns the folders of FOLDERS that have headers, in that order."""
    found = []
    for pattern in FOLDERS:
        found += sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if any(path.glob("*.h")))
    return found


def page(root: Path, folder: str) -> str:
    """Returns the page of a folder's headers."""
    headers = sorted((root / folder).glob("*.h"))
    return f"# {folder}: headers\n\n" + "\n".join(section(f"{folder}/{path.name}", path.read_text(encoding="utf-8"))
                                                 for path in headers)


def section(name: str, text: str) -> str:
    """Returns the part of the page for one header."""
    opening, _, rest = text.partition("#pragma once")
    out = [f"## {name}", "", escaped(uncommented(opening.splitlines())), ""]
    for declaration in declarations(rest.splitlines()):
        code = shortened(declaration.code)
        title = name_of(code)
        if title and declaration.comment:
            out += [f"### `{title}`", ""]
        out += [escaped(uncommented(declaration.comment)), "", "~~~~cpp", *code, "~~~~", ""]
    return "\n".join(out)


def uncommented(lines: list[str]) -> str:
    """Returns the text of comment lines."""
    return "\n".join(re.sub(r"^\s*//[/!]? ?", "", line) for line in lines).strip()


def escaped(text: str) -> str:
    """Returns text of a comment as Markdown: signs that Markdown and HTML would take as theirs stand for themselves."""
    lines = []
    for line in text.splitlines():
        parts = re.split(r"(`[^`]*`)", line.strip() if not line.startswith("    ") else line)
        lines.append("".join(part if i % 2 else re.sub(r"([\\<*_\[\]#])", r"\\\1", part) for i, part in enumerate(parts)))
    return re.sub(r"(?m)(?<=[^\n])\n(?=[-*] )", "\n\n", "\n".join(lines))


def declarations(lines: list[str]) -> list[Declaration]:
    """Splits the lines after `#pragma once` into declarations of namespaces."""
    found: list[Declaration] = []
    comment: list[str] = []
    after_blank = True
    rest = iter(lines)
    for line in rest:
        bare = line.strip()
        if bare.startswith("///"):
            comment.append(line)
            continue
        if not bare or SKIPPED.match(bare):
            comment, after_blank = [], True
            continue
        code = [line]
        while not ends(code):
            code.append(next(rest, ""))
            if len(code) > len(lines):  # the header isn't in the form that this reader expects
                raise ValueError(f"no end of the declaration {bare!r}")
        if comment or after_blank or not found:
            found.append(Declaration(comment, code))
        else:
            found[-1].code += code
        comment, after_blank = [], False
    return [one for one in found if not re.fullmatch(r"(class|struct|enum class) [\w:]+( : [\w:]+)?;", one.code[0].strip())
            or one.comment]


def ends(code: list[str]) -> bool:
    """Returns true if the lines hold a whole declaration, or a whole #define."""
    if code[0].lstrip().startswith("#"):
        return not code[-1].endswith("\\")
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'', '""', "\n".join(code))
    text = re.sub(r"//.*|/\*.*?\*/", "", text).rstrip()
    opened = sum(text.count(sign) for sign in "({") - sum(text.count(sign) for sign in ")}")
    return opened == 0 and text.endswith((";", "}"))


def shortened(code: list[str]) -> list[str]:
    """Returns a declaration without bodies of functions, lists of initializers and private members."""
    out: list[str] = []
    body = 0  # opened braces of a function's body
    in_initializers = False
    private = ""  # the indentation of the class whose private members these are, and a brace
    for line in code:
        bare = re.sub(r"//.*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)'", "", line).rstrip()
        braces = bare.count("{") - bare.count("}")
        if body:
            body += braces
        elif in_initializers or re.match(r" +: ", bare) and out and not out[-1].endswith(";"):
            if not in_initializers:
                out[-1] += ";"
            in_initializers = not bare.endswith(("{", "}"))
            body = max(0, braces)
        elif not private and re.fullmatch(r" *(private|protected):", bare):
            private = bare[1:len(bare) - len(bare.lstrip())] + "}"
        elif private and not line.startswith(private) and bare != f"{private[:-1]} public:":
            continue
        else:
            private = ""
            head = BODY.match(bare)
            out.append(f"{head[1]};" if head else line)
            body = max(0, braces) if head else 0
    return [line for i, line in enumerate(out) if line.strip() or i + 1 < len(out) and "}" not in out[i + 1]]


def name_of(code: list[str]) -> str:
    """Returns the name that a declaration declares, or "" if this reader finds none."""
    text = " ".join(line.strip() for line in code if not line.strip().startswith("//"))
    text = re.sub(r"^(template <[^{]*?> (?=[a-z\[]))+", "", text)
    for pattern in (r"^#define (\w+)", r"^(?:class|struct|enum class|enum|union) (?:\[\[\w+\]\] )?(\w+)", r"^using ([\w:]+)",
                    r"(operator[^\s\w]+|~?\w+)\s*\(", r"(\w+)(?:\[\w*\])*(?: = |\{|;)"):
        found = re.search(pattern, re.sub(r"\[\[\w+\]\] ", "", text))
        if found:
            return found[1]
    return ""
