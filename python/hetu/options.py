"""Options as the tables of C++ state them (base/fields.h): keywords, flags of scripts and their help are made of
these, and have no defaults, ranges or docs of their own."""

from __future__ import annotations

import argparse
import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetu import _hetu

KINDS: dict[str, Any] = {"whole number": int, "number": float, "text": str}


@dataclass(frozen=True)
class Field:
    """One option. name: the keyword; flag: of a script, unless its value stands in the KEY=VALUE text of `within`; default:
    what holds if it is not told, in words `otherwise` or, with a value too, `said`; type, range, choices: what it may be;
    doc, help: with the default; negated: the doc of its --no-… form; since: the version that has it first."""

    name: str
    flag: str
    within: str | None
    type: str
    argument: str | None
    default: Any
    otherwise: str | None
    said: str
    range: str
    choices: tuple[str, ...]
    doc: str
    help: str
    negated: str | None
    unit: str
    since: str

    @property
    def shown(self) -> str:
        """The default as a page shows it."""
        return self.said or ({True: "on", False: "off"}[self.default] if self.type == "flag" else "-")

    @property
    def dest(self) -> str:
        """Where argparse puts it."""
        return self.flag.lstrip("-").replace("-", "_")


@functools.cache
def table(name: str) -> dict[str, Field]:
    """The fields of a table by name, in the order of help: plan, choose, training, averaging, stragglers, …"""
    rows = _hetu.option_fields(name)
    return {row["name"]: Field(**{**row, "choices": tuple(row["choices"])}) for row in rows}


def tables() -> list[str]:
    """Names of all tables."""
    return list(_hetu.option_tables())


def check(name: str, values: dict[str, Any]) -> None:
    """Throws ValueError: a value that is none of its field's, or values that do not go together. None is not told."""
    _hetu.check_options(name, values)


def _flag(parser: argparse.ArgumentParser, field: Field, untold: bool) -> None:
    doc = field.doc.replace("%", "%%")
    if field.type == "flag":
        flag, doc = (f"--no-{field.flag[2:]}", field.negated) if field.negated else (field.flag, doc)
        parser.add_argument(flag, action="store_true", help=doc)
        return
    if field.type == "records":
        parser.add_argument(field.flag, action="append", default=[], metavar=field.argument, help=doc)
        return
    own = parser.get_default(field.dest)  # of the script
    kind = str if field.unit == "bytes" else KINDS.get(field.type, str)
    parser.add_argument(
        field.flag, type=kind, choices=field.choices or None, metavar=None if field.choices else field.argument,
        help=field.help.replace("%", "%%") if own is None else f"{doc} (default %(default)s)",
        default=own if own is not None else None if untold or field.otherwise is not None else field.default,
    )


def add_flags(parser: argparse.ArgumentParser, fields: Iterable[Field], untold: Iterable[str] = ()) -> None:
    """A flag for each field. A default that the script has set before (parser.set_defaults) stands; that of a field among
    `untold`, and one that is said in words (otherwise), is None: not told. Keys of one text share a flag."""
    texts: dict[str, list[str]] = {}
    for field in fields:
        if field.within:
            texts.setdefault(field.within, []).append(field.name)
        else:
            _flag(parser, field, field.name in untold)
    for flag, names in texts.items():
        parser.add_argument(flag, default="", metavar="K=V,…", help=f"further constants: {', '.join(names)}")


def of_args(args: argparse.Namespace, fields: Iterable[Field]) -> dict[str, Any]:
    """What the flags of these fields were told, by keyword."""
    told: dict[str, Any] = {}
    for field in fields:
        if field.negated and hasattr(args, f"no_{field.dest}"):
            told[field.name] = not getattr(args, f"no_{field.dest}")
        elif not field.within and hasattr(args, field.dest):
            told[field.name] = getattr(args, field.dest)
    return told


def parameters(fields: Iterable[Field], kind: Any = inspect.Parameter.KEYWORD_ONLY) -> list[inspect.Parameter]:
    """The fields as a function's parameters."""
    return [inspect.Parameter(field.name, kind, default=_default(field)) for field in fields]


def sign(kind: type, fields: list[Field]) -> None:
    """Gives a class whose constructor takes the fields as **told a signature and a docstring that have them; None stands for
    a default that is said in words."""
    own = inspect.signature(kind)
    named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    words = [field.name for field in fields if field.otherwise is not None]
    more = [p.replace(default=None) if p.name in words else p for p in parameters(fields)]
    kind.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
    kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n\n{documented(fields)}"


def _default(field: Field) -> Any:
    if field.type.startswith(("list", "records")):
        return list(field.default or ())
    return field.default


def as_keywords(text: str) -> str:
    """A message about options in the words of Python: `micro_batches`, where the command line has --micro-batches."""
    text = re.sub(r"(?<![\w-])--([a-z][a-z-]*[a-z])(?=[^\w-]|$)", lambda flag: flag[1].replace("-", "_"), text)
    return text.replace("help lists them", "help(hetu.Executor) lists them")


def documented(fields: Iterable[Field]) -> str:
    """A line per field, for a docstring."""
    return "\n".join(f"    {field.name}: {field.doc}" + (f"; {field.range}" if field.range not in ("", ">= 0") else "")
                     for field in fields)


class Options:
    """A class of keywords that are the fields of a table: `class Averaging(Options, table="averaging")`. What they may be is
    checked where they are used."""

    table: str

    def __init_subclass__(cls, table: str) -> None:
        cls.table = table
        fields = _fields(cls)
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            parameters(fields, inspect.Parameter.POSITIONAL_OR_KEYWORD))
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{documented(fields)}"

    def __init__(self, *values: Any, **told: Any) -> None:
        try:
            given = inspect.signature(type(self)).bind(*values, **told)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}; its options: "
                            + ", ".join(field.name for field in _fields(type(self)))) from None
        defaults = {field.name: _default(field) for field in _fields(type(self))}
        self.__dict__.update({**defaults, **given.arguments})

    def settings(self) -> dict[str, Any]:
        """As the C++ side reads them."""
        return dict(self.__dict__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    if TYPE_CHECKING:  # its fields

        def __getattr__(self, name: str) -> Any: ...


def _fields(kind: type[Options]) -> list[Field]:
    return list(table(kind.table).values())
