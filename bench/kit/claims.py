"""Claims that are shown, not told: each with a way to try it, a figure and a verdict; a table, a page, a line."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
Say = Callable[[str], None]

NOT_RUN = "not run"


class NotPlayed(Exception):
    """What would show a claim was not played: it neither holds nor falls short."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a claim's trial gave: the figure in words, whether it is enough, and the numbers for programs."""

    figure: str
    passed: bool
    numbers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """`says` is the claim with its bound; `run(long)` tries it, at full size when `long`. Raising means failing."""

    name: str
    says: str
    run: Callable[[bool], Finding]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what came of it; no finding when it was not run."""

    claim: Claim
    finding: Finding | None
    took_s: float = 0.0

    @property
    def word(self) -> str:
        if self.finding is None:
            return NOT_RUN
        return "holds" if self.finding.passed else "FALLS SHORT"


class Once(Generic[T]):
    """Several claims rest on one long measurement: it is made at the first call, and fails for all of them alike."""

    def __init__(self, make: Callable[[bool], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._failure: Exception | None = None

    def __call__(self, long: bool) -> T:
        if self._failure is not None:
            raise self._failure
        if self._made is None:
            try:
                self._made = self._make(long)
            except Exception as error:
                self._failure = error
                raise
        return self._made


def try_claims(claims: Sequence[Claim], only: Collection[str], *, long: bool, say: Say) -> list[Verdict]:
    """Tries the claims in `only`, all of them when it is empty; one after the other, whatever becomes of each."""
    verdicts = []
    for claim in claims:
        if only and claim.name not in only:
            verdicts.append(Verdict(claim, None))
            continue
        say(f"{claim.name}: {claim.says}")
        begun_s = time.monotonic()
        try:
            finding = claim.run(long)
        except NotPlayed:
            say(f"{claim.name}: {NOT_RUN}")
            verdicts.append(Verdict(claim, None))
            continue
        except Exception as error:
            # Whole, for whoever looks on; the page has its first line.
            say(str(error))
            finding = Finding(_sentence(error), passed=False)
        verdict = Verdict(claim, finding, time.monotonic() - begun_s)
        say(f"{claim.name}: {verdict.word}: {finding.figure}")
        verdicts.append(verdict)
    return verdicts


def _sentence(error: Exception) -> str:
    """The error without the places of this machine: the page is kept with the code."""
    lines = str(error).strip().splitlines()
    text = f"failed: {type(error).__name__}: {lines[0] if lines else 'without a word'}"
    for place in (tempfile.gettempdir(), str(Path(__file__).resolve().parents[2]), str(Path.home())):
        if len(place) > 1:
            text = text.replace(place, "...")
    return text


def all_hold(verdicts: Sequence[Verdict]) -> bool:
    """Every claim was tried, and none falls short."""
    return all(verdict.finding is not None and verdict.finding.passed for verdict in verdicts)


def to_json(show: str, verdicts: Sequence[Verdict]) -> str:
    """One flat line."""
    line: dict[str, object] = {
        "show": show,
        "ok": all_hold(verdicts),
        "claims": len(verdicts),
        "passed": sum(verdict.finding is not None and verdict.finding.passed for verdict in verdicts),
        "not_run": sum(verdict.finding is None for verdict in verdicts),
    }
    found = [verdict.finding for verdict in verdicts if verdict.finding is not None]
    return json.dumps(line | {name: number for finding in found for name, number in finding.numbers})


def to_text(verdicts: Sequence[Verdict]) -> str:
    """The table for a terminal: one claim below the other, its figure on a line of its own."""
    width = max(len(NOT_RUN), len("FALLS SHORT"))
    blocks = []
    for verdict in verdicts:
        blocks.append(f"{verdict.word:{width}}  {verdict.claim.says}")
        if verdict.finding is not None:
            blocks.append(f"{'':{width}}  {verdict.finding.figure} ({verdict.took_s:.0f} s)")
    return "\n".join(blocks)


def to_page(head: str, machine: str, size: str, verdicts: Sequence[Verdict], line: str) -> str:
    """The page of evidence, Markdown."""
    rows = ["| claim | figure | verdict |", "| --- | --- | --- |"]
    for verdict in verdicts:
        figure = verdict.finding.figure if verdict.finding is not None else ""
        rows.append(f"| {_cell(verdict.claim.says)} | {_cell(figure)} | {verdict.word} |")
    return f"{head}\nOn {machine}; {size}.\n\n" + "\n".join(rows) + f"\n\n```json\n{line}\n```\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
