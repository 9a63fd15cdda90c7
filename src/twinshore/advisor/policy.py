"""What an operator wants judged, and how: which rules, which limits, what is waived until when. Pure.

A policy is a file of TOML. A waiver has a reason and an end, so that nothing is passed over for ever.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twinshore.advisor.rule import SHARED, WEIGHTS, Limit, Weight
from twinshore.fleet import ConfigError
from twinshore.fleet.settings.edge import Complaints, did_you_mean

KEYS = ("fail_at", "limits", "rules", "waivers")
_SHARED_NAMES = frozenset(one.name for one in SHARED)
WAIVER_KEYS = ("rule", "subject", "reason", "until")


class Ruled(Protocol):
    """A rule, as far as a policy knows it."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...


class Told(Protocol):
    """A finding, as far as a policy knows it."""

    @property
    def rule(self) -> str: ...
    @property
    def subject(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings of the rule at subjects that the expression meets whole are passed over, through the day `until`."""

    rule: str
    subject: str
    reason: str
    until: datetime.date

    def meets(self, finding: Told) -> bool:
        return finding.rule == self.rule and re.fullmatch(self.subject, finding.subject) is not None

    def holds(self, day: datetime.date) -> bool:
        return day <= self.until


@dataclass(frozen=True, slots=True)
class Policy:
    """`fail_at`: the least weight of a finding that makes the answer no. `limits` by rule and name, where they are
    other than by default; those that rules share are by "" and name."""

    fail_at: Weight = Weight.WARNING
    off: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    def limits_of(self, rule: Ruled) -> dict[str, float]:
        owned = [("", one) for one in SHARED] + [(rule.name, one) for one in rule.limits]
        return {one.name: self.limits.get((owner, one.name), one.default) for owner, one in owned}

    def fails(self, weight: Weight) -> bool:
        return WEIGHTS.index(weight) <= WEIGHTS.index(self.fail_at)

    def waiver_of(self, finding: Told, day: datetime.date) -> Waiver | None:
        """What passes the finding over on that day."""
        return next((one for one in self.waivers if one.meets(finding) and one.holds(day)), None)

    def remarks(self, found: Sequence[Told], day: datetime.date) -> Iterator[str]:
        """What is to be known of the policy itself."""
        for waiver in self.waivers:
            what = f"the waiver of {waiver.rule} for {waiver.subject!r} ({waiver.reason})"
            if not waiver.holds(day):
                yield f"{what} ended on {waiver.until}: what it passed over counts again"
            elif not any(waiver.meets(one) for one in found):
                yield f"{what} meets nothing: take it out of the policy"
        if self.off:
            yield f"the policy leaves out {', '.join(sorted(self.off))}"


def parse_policy(text: str, name: str, rules: Sequence[Ruled]) -> Policy:
    """The policy of a file's text; a ConfigError that names all that is wrong with it."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"policy {name}: {error}") from error
    wrong = Complaints()
    for key in table.keys() - set(KEYS):
        wrong.add("", f"{key!r} is no key of a policy{did_you_mean(key, KEYS)}")
    known = {rule.name: rule for rule in rules}
    fail_at = _fail_at(table.get("fail_at", Weight.WARNING.value), wrong)
    off, limits = _rules(table.get("rules", {}), known, wrong)
    limits |= _shared(table.get("limits", {}), wrong)
    waivers = _waivers(table.get("waivers", []), known, wrong)
    if wrong.lines:
        raise ConfigError(f"policy {name}: " + "; ".join(wrong.lines))
    return Policy(fail_at, frozenset(off), limits, waivers)


def _fail_at(value: Any, wrong: Complaints) -> Weight:
    try:
        return Weight(value)
    except ValueError:
        wrong.add("fail_at", f"is {value!r}; it is one of {', '.join(WEIGHTS)}")
        return Weight.WARNING


def _rules(table: Any, known: Mapping[str, Ruled], wrong: Complaints) -> tuple[set[str], dict[tuple[str, str], float]]:
    off: set[str] = set()
    limits: dict[tuple[str, str], float] = {}
    if not isinstance(table, dict):
        wrong.add("rules", "has a section for each rule, as [rules.few-copies]")
        return off, limits
    for name, section in table.items():
        rule, place = known.get(name), f"[rules.{name}]"
        if rule is None:
            wrong.add(place, f"is no rule{did_you_mean(name, known)}")
            continue
        own = {limit.name: limit for limit in rule.limits}
        for key, value in section.items() if isinstance(section, dict) else ():
            if key in _SHARED_NAMES:
                wrong.add(place, f"has no {key!r} of its own: all rules go by that of [limits]")
            elif key not in ("enabled", *own):
                wrong.add(place, f"has no {key!r}{did_you_mean(key, ['enabled', *own])}")
            elif key == "enabled":
                if not isinstance(value, bool):
                    wrong.add(place, f"enabled must be true or false, not {value!r}")
                elif not value:
                    off.add(name)
            elif (number := _number(own[key], value, place, wrong)) is not None:
                limits[name, key] = number
    return off, limits


def _shared(table: Any, wrong: Complaints) -> dict[tuple[str, str], float]:
    limits: dict[tuple[str, str], float] = {}
    if not isinstance(table, dict):
        wrong.add("limits", "is a section: [limits]")
        return limits
    known = {one.name: one for one in SHARED}
    for name, value in table.items():
        if name not in known:
            wrong.add("[limits]", f"has no {name!r}{did_you_mean(name, known)}")
        elif (number := _number(known[name], value, "[limits]", wrong)) is not None:
            limits["", name] = number
    return limits


def _number(limit: Limit, value: Any, place: str, wrong: Complaints) -> float | None:
    kind, least = (int, 1) if limit.whole else (int | float, 0)
    if isinstance(value, bool) or not isinstance(value, kind) or not _finite(value) or value < least:
        whole = "whole " if limit.whole else ""
        wrong.add(place, f"{limit.name} must be a {whole}number from {least} on, not {value!r}")
        return None
    return float(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _waivers(rows: Any, known: Mapping[str, Ruled], wrong: Complaints) -> tuple[Waiver, ...]:
    found = []
    if not isinstance(rows, list):
        wrong.add("waivers", "is a list of tables, as [[waivers]]")
        return ()
    for number, row in enumerate(rows, 1):
        place = f"waiver {number}"
        if not isinstance(row, dict) or _lacks(row, place, known, wrong):
            continue
        found.append(Waiver(row["rule"], row["subject"], row["reason"].strip(), row["until"]))
    return tuple(found)


def _lacks(row: Mapping[str, Any], place: str, known: Mapping[str, Ruled], wrong: Complaints) -> bool:
    before = len(wrong.lines)
    for key in row.keys() - set(WAIVER_KEYS):
        wrong.add(place, f"has no {key!r}{did_you_mean(key, WAIVER_KEYS)}")
    for key in ("rule", "subject", "reason"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            wrong.add(place, f"needs {key!r}, a text")
    rule = row.get("rule")
    if isinstance(rule, str) and rule not in known:
        wrong.add(place, f"is for {rule!r}, which is no rule{did_you_mean(rule, known)}")
    until = row.get("until")
    if not isinstance(until, datetime.date) or isinstance(until, datetime.datetime):
        wrong.add(place, "needs 'until', a day such as 2027-01-31")
    try:
        re.compile(str(row.get("subject", "")))
    except re.error as error:
        wrong.add(place, f"subject is no expression: {error}")
    return len(wrong.lines) > before
