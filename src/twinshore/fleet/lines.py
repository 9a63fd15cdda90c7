"""A sentence as one line of a log: names that others chose may hold line breaks, and would write lines of their own."""

from __future__ import annotations


def one_line(sentence: str) -> str:
    """The sentence with whatever does not print as its escape, as in "a\\nb"."""
    if sentence.isprintable():
        return sentence
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in sentence)
