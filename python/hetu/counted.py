"""Numbers with their nouns, for messages. Uses the standard library only: the launcher imports it without the extension."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Returns "1 stage" or "3 stages". Give the noun of a longer phrase alone: f'{counted(2, "group")} of parameters'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
