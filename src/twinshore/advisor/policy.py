"""What an operator wants judged, and how: which rules, which limits, what is waived until when. Pure.

A policy is a file of TOML. A waiver has a reason and an end, so that nothing is passed over for ever.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinshore.advisor.rule import WEIGHTS, Finding, Rule, Weight
from twinshore.fleet import ConfigError
from twinshore.fleet.settings.edge import Complaints, did_you_mean

KEYS = ("fail_at", "rules", "waivers")
WAIVER_KEYS = ("rule", "subject", "reason", "until")


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings of the rule at subjects that the expression meets whole are passed over, through the day `until`."""

    rule: str
    subject: str
    reason: str
    until: datetime.date

    def meets(self, finding: Finding) -> bool:
        return finding.rule == self.rule and re.fullmatch(self.subject, finding.subject) is not None

    def holds(self, day: datetime.date) -> bool:
        return day <= self.until


@dataclass(frozen=True, slots=True)
class Policy:
    """`fail_at`: the least weight of a finding that makes the answer no. `limits` by rule and name, where they are
    other than the rule's own."""

    fail_at: Weight = Weight.WARNING
    off: frozenset[str] = frozenset()
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    def limits_of(self, rule: Rule) -> dict[str, float]:
        return {one.name: self.limits.get((rule.name, one.name), one.default) for one in rule.limits}

    def fails(self, weight: Weight) -> bool:
        return WEIGHTS.index(weight) <= WEIGHTS.index(self.fail_at)


def parse_policy(text: str, name: str, rules: tuple[Rule, ...]) -> Policy:
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


def _rules(table: Any, known: Mapping[str, Rule], wrong: Complaints) -> tuple[set[str], dict[tuple[str, str], float]]:
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
        names = ["enabled", *(limit.name for limit in rule.limits)]
        for key, value in section.items() if isinstance(section, dict) else ():
            if key not in names:
                wrong.add(place, f"has no {key!r}{did_you_mean(key, names)}")
            elif key == "enabled":
                if not isinstance(value, bool):
                    wrong.add(place, f"enabled must be true or false, not {value!r}")
                elif not value:
                    off.add(name)
            elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                wrong.add(place, f"{key} must be a number from 0 on, not {value!r}")
            else:
                limits[name, key] = float(value)
    return off, limits


def _waivers(rows: Any, known: Mapping[str, Rule], wrong: Complaints) -> tuple[Waiver, ...]:
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


def _lacks(row: Mapping[str, Any], place: str, known: Mapping[str, Rule], wrong: Complaints) -> bool:
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
