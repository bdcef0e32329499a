"""The scripts' argument parser: one-line errors, --config FILE.yml, second names of flags, `_` accepted for `-`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hetu import files
from hetu.command_parser import CommandParser
from hetu.place import path_of


class Parser(CommandParser):
    """A CommandParser that raises ValueError, because every worker parses and only one should print. A script that calls
    add_config() last has --config."""

    has_config = False

    def error(self, message: str) -> NoReturn:
        message = self.with_suggestion(message)
        raise ValueError(f"{message}{'' if message.endswith('?') else ';'} --help lists the options")

    def format_help(self) -> str:
        """Returns the help, with a short usage: the groups below list the options."""
        required = [f"{action.option_strings[0]} {action.metavar or action.dest.upper()}" for action in self._actions
                    if action.required]
        self.usage = " ".join(["%(prog)s", *required, "[options]"])
        return super().format_help()

    def also(self, flag: str, other: str) -> None:
        """Gives `flag` a second name, which --help does not show."""
        self._option_string_actions[other] = self._option_string_actions[flag]

    def add_config(self) -> None:
        """Adds --config: a file of flags."""
        self.add_argument("--config", metavar="FILE.yml", help="lines of `flag: value`; they override the command line")
        self.has_config = True

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore
        typed = [self._known(word) for word in (sys_arguments() if args is None else args)]
        path = self._config_of(typed)
        # values in the file take the place of typed flags, and required flags may stand in the file alone
        set_there = read_flags(path, self) if path else {}
        required = [action for action in self._actions if action.required]
        for action in required:
            action.required = action.dest not in set_there
        try:
            parsed: argparse.Namespace = super().parse_args(typed, namespace)
        finally:
            for action in required:
                action.required = True
        vars(parsed).update(set_there)
        for name, value in vars(parsed).items():  # paths, also in defaults; no other values begin with ~
            if isinstance(value, str) and value.startswith("~"):
                setattr(parsed, name, path_of(value))
        return parsed

    def _known(self, word: str) -> str:
        """Returns the argument; in a flag with `_`, replaces `_` by `-` if that flag exists."""
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name in self._option_string_actions:
            return word
        with_dashes = name.replace("_", "-")
        return with_dashes + equals + value if with_dashes in self._option_string_actions else word

    def _config_of(self, typed: Sequence[str]) -> str | None:
        if not self.has_config:
            return None
        before = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        before.add_argument("--config")
        try:
            path: str | None = before.parse_known_args(list(typed))[0].config
        except argparse.ArgumentError as error:
            self.error(str(error))
        return path and path_of(path)

    def flag_of(self, name: str) -> argparse.Action | None:
        """Returns the flag for a key of --config, which is a flag without its dashes, or None."""
        for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
            action = self._option_string_actions.get(flag)
            if action is not None and action.dest not in ("help", "config"):
                return action
        return None


def check_suffix(flag: str, path: str | Path | None, *known: str) -> None:
    """Throws ValueError if the file's suffix is not one that the flag writes. A name without a suffix is allowed."""
    suffix = Path(path or "").suffix.lower()
    if suffix and suffix not in known:
        raise ValueError(f"{flag} {path}: unknown suffix '{suffix}'; known: {', '.join(known)}")


def check_log(path: str | None) -> None:
    """Throws ValueError if the file of --log has the suffix of another kind of file."""
    check_suffix("--log", path, ".jsonl", ".json", ".csv", ".log", ".txt")


def sys_arguments() -> list[str]:
    """Returns the typed arguments."""
    import sys

    return sys.argv[1:]


def read_flags(path: str, parser: Parser) -> dict[str, Any]:
    """Reads a file of `flag: value` lines, each value parsed like the flag's argument. Returns values by dest. Throws
    ValueError with file and line, and OSError."""
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(files.read_bytes(path).decode().splitlines(), 1):
        if not (text := line.split(" #")[0].strip()) or text.startswith("#") or text == "---":
            continue
        name, colon, value = (part.strip() for part in text.partition(":"))
        at = f"{path}:{number}"
        if not colon or not value:
            raise ValueError(f"{at}: '{text}' is not a line of the form `flag: value`")
        action = parser.flag_of(name)
        if action is None:
            known = [flag[2:] for flag in parser._option_string_actions if flag.startswith("--")]
            import difflib  # imported late, to save the time at each start of a worker

            near = difflib.get_close_matches(name, known, 1)
            raise ValueError(f"{at}: unknown key '{name}'{f', {near[0]} is one' if near else ''}; keys are this "
                             "script's flags")
        if action.dest in found:
            raise ValueError(f"{at}: {name} is already set in line {lines[action.dest]}")
        found[action.dest], lines[action.dest] = _value(action, name, value.strip("'\""), at), number
    return found


def _value(action: argparse.Action, name: str, value: str, at: str) -> Any:
    if action.nargs == 0:
        if value not in ("true", "True", "false", "False"):
            raise ValueError(f"{at}: {name} must be true or false, got {value}")
        return (value in ("true", "True")) == bool(getattr(action, "const", True))
    kind: Any = action.type or str
    try:
        made = kind(value)
    except argparse.ArgumentTypeError as error:  # the message of a type function
        raise ValueError(f"{at}: {name}: {error}") from None
    except (TypeError, ValueError):
        raise ValueError(f"{at}: {name}: {value} is not a valid {getattr(kind, '__name__', repr(kind))}") from None
    if action.choices and made not in action.choices:
        raise ValueError(f"{at}: {name} must be one of {', '.join(map(str, action.choices))}, got {value}")
    return [made] if isinstance(action.default, list) else made
