"""Options as defined by the tables of C++ (base/fields.h). Keywords, flags of scripts and their help are created from these
tables, and have no defaults, ranges or docs of their own."""

from __future__ import annotations

import argparse
import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetu import _hetu

Flags = argparse.ArgumentParser | argparse._ArgumentGroup  # what takes flags
KINDS: dict[str, Any] = {"whole number": int, "number": float, "text": str}


@dataclass(frozen=True)
class Field:
    """One option.

    name: the keyword.
    flag: the flag of a script, unless the value is part of the KEY=VALUE text of the flag `within`.
    default: the value if none is given. `otherwise` describes the default in words; `said` describes a default that also
    has a value.
    type, range, choices: the allowed values.
    doc, help: the description, without and with the default.
    negated: the description of the --no-… form.
    since: the first version that has the option.
    """

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
        """The default in the form that a page shows."""
        return self.said or ({True: "on", False: "off"}[self.default] if self.type == "flag" else "-")

    @property
    def dest(self) -> str:
        """The attribute in which argparse stores it."""
        return self.flag.lstrip("-").replace("-", "_")


@functools.cache
def table(name: str) -> dict[str, Field]:
    """Returns the fields of a table by name, in the order of help. Tables are plan, choose, training, averaging, stragglers
    and others."""
    rows = _hetu.option_fields(name)
    return {row["name"]: Field(**{**row, "choices": tuple(row["choices"])}) for row in rows}


def tables() -> list[str]:
    """Returns the names of all tables."""
    return list(_hetu.option_tables())


def check(name: str, values: dict[str, Any]) -> None:
    """Throws ValueError if a value is invalid for its field, or if values don't fit together. None means not given."""
    _hetu.check_options(name, values)


def _flag(parser: Flags, field: Field, untold: bool) -> None:
    doc = field.doc.replace("%", "%%")
    if field.type == "flag":
        flag, doc = (f"--no-{field.flag[2:]}", field.negated) if field.negated else (field.flag, doc)
        parser.add_argument(flag, action="store_true", help=doc)
        return
    if field.type == "records":
        parser.add_argument(field.flag, action="append", default=[], metavar=field.argument, help=doc)
        return
    own = parser.get_default(field.dest)  # default set by the script
    kind = str if field.unit == "bytes" else KINDS.get(field.type, str)
    parser.add_argument(
        field.flag, type=kind, choices=field.choices or None, metavar=None if field.choices else field.argument,
        help=field.help.replace("%", "%%") if own is None else f"{doc} (default %(default)s)",
        default=own if own is not None else None if untold or field.otherwise is not None else field.default,
    )


def add_flags(parser: Flags, fields: Iterable[Field], untold: Iterable[str] = ()) -> None:
    """Adds a flag for each field. A default that the script has set before (parser.set_defaults) stays. The default is None
    (not given) for a field in `untold`, and for one whose default is described in words (otherwise). Keys of one KEY=VALUE
    text share a flag."""
    texts: dict[str, list[str]] = {}
    for field in fields:
        if field.within:
            texts.setdefault(field.within, []).append(field.name)
        else:
            _flag(parser, field, field.name in untold)
    for flag, names in texts.items():
        parser.add_argument(flag, default="", metavar="K=V,…", help=f"further constants: {', '.join(names)}")


def of_args(args: argparse.Namespace, fields: Iterable[Field]) -> dict[str, Any]:
    """Returns the values of these fields' flags, by keyword."""
    given: dict[str, Any] = {}
    for field in fields:
        if field.negated and hasattr(args, f"no_{field.dest}"):
            given[field.name] = not getattr(args, f"no_{field.dest}")
        elif not field.within and hasattr(args, field.dest):
            given[field.name] = getattr(args, field.dest)
    return given


def parameters(fields: Iterable[Field], kind: Any = inspect.Parameter.KEYWORD_ONLY) -> list[inspect.Parameter]:
    """Returns the fields as parameters of a function."""
    return [inspect.Parameter(field.name, kind, default=_default(field)) for field in fields]


def sign(kind: type, fields: list[Field]) -> None:
    """Adds the fields to the signature and docstring of a class whose constructor takes them as **named. None stands for a
    default that is described in words."""
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


_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*(?![\w-])")
_UNKNOWN = re.compile(r"unknown option (--\S+?)(?:; did you mean .*)?; --help lists them", re.S)
# Flags of the scripts for arguments of Executor and its run() that are in no table. AD-PSGD is a method of averaging.
_ARGUMENTS = {"--pipeline": "pipeline", "--method": "pipeline",
              "--devices": "devices", "--costs": "costs", "--compare-single": "compare_single",
              "--preduce": "averaging", "--adpsgd": "averaging", "--checkpoint": "checkpoint", "--resume": "resume",
              "--trace": "trace"}


@functools.cache
def keywords_of_flags(*names: str) -> dict[str, str]:
    """Returns Python's keyword for each flag of these tables, the last of which precedes. Optimizers have keywords named
    like the flags."""
    found: dict[str, str] = {}
    for name in names:
        of_optimizer = name == "rate" or "kind" in table(name)
        found |= {field.flag: field.dest if of_optimizer else field.name
                  for field in table(name).values() if field.flag}
    return found


def in_keywords(text: str, keywords: dict[str, str], help_text: str) -> str:
    """Converts an error message of C++, which names options by their flags, to Python's keywords. Other flags, such as
    those of heturun, stay. `help_text` shows all keywords."""
    if unknown := _UNKNOWN.fullmatch(text):  # its flag, of which no option exists, was made of the keyword
        text = text.replace(unknown[1], unknown[1][2:].replace("-", "_"), 1).replace("--help", help_text)
    return _FLAG.sub(lambda flag: keywords.get(flag[0], flag[0]), text)


def as_keywords(text: str) -> str:
    """Converts a message about the options of a job to the keywords of Executor, of its run() and of optimizers."""
    known = keywords_of_flags("averaging", "stragglers", "rate", "lamb", "training") | _ARGUMENTS
    return in_keywords(text, known, "help(hetu.Executor)")


def documented(fields: Iterable[Field]) -> str:
    """Returns a line per field, for a docstring."""
    return "\n".join(f"    {field.name}: {field.doc}" + (f"; {field.range}" if field.range not in ("", ">= 0") else "")
                     for field in fields)


class Options:
    """Base of classes whose keywords are the fields of a table: `class Averaging(Options, table="averaging")`. Values are
    checked where they are used."""

    table: str

    def __init_subclass__(cls, table: str) -> None:
        cls.table = table
        fields = _fields(cls)
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            parameters(fields, inspect.Parameter.POSITIONAL_OR_KEYWORD))
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{documented(fields)}"

    def __init__(self, *values: Any, **named: Any) -> None:
        try:
            given = inspect.signature(type(self)).bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}; its options: "
                            + ", ".join(field.name for field in _fields(type(self)))) from None
        defaults = {field.name: _default(field) for field in _fields(type(self))}
        self.__dict__.update({**defaults, **given.arguments})

    def settings(self) -> dict[str, Any]:
        """Returns the settings for the C++ side."""
        return dict(self.__dict__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    if TYPE_CHECKING:  # the fields

        def __getattr__(self, name: str) -> Any: ...


def _fields(kind: type[Options]) -> list[Field]:
    return list(table(kind.table).values())
