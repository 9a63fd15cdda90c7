"""The table of rules on docs/conduct.md, as the rules have it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.advisor.conduct.rule import HabitRule
from twinshore.advisor.conduct.rules import HABITS
from twinshore.advisor.page import BEGIN, END


def with_habits(page: str) -> str:
    """The page with the table of rules as the code has them."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = [
        "| rule | weight | it is found where | it costs | settings | limits |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    table = "\n".join([*rows, *_rows(HABITS)])
    return f"{head}{BEGIN}\n{table}\n\n{END}{tail}"


def _rows(rules: Iterable[HabitRule]) -> Iterable[str]:
    for rule in rules:
        limits = "; ".join(f"`{one.name}` = {one.default:g}: {one.says}" for one in rule.limits)
        yield f"| `{rule.name}` | {rule.weight} | {rule.says} | {rule.costs} | {'; '.join(rule.settings)} | {limits} |"
