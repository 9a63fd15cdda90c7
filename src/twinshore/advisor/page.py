"""The table of rules on docs/advisor.md, as the rules have it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.advisor.rule import SHARED, Rule
from twinshore.advisor.rules import RULES

BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->\n"


def with_rules(page: str) -> str:
    """The page with the table of rules as the code has them."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = ["| rule | weight | it is found where | at risk | when | limits | story |", "| --- " * 7 + "|"]
    table = "\n".join([*rows, *_rows(RULES)])
    shared = "\n".join(f"- `{one.name}` = {one.default:g}: {one.says}" for one in SHARED)
    return f"{head}{BEGIN}\nIn `[limits]`, for all rules:\n\n{shared}\n\n{table}\n\n{END}{tail}"


def _rows(rules: Iterable[Rule]) -> Iterable[str]:
    for rule in rules:
        limits = "; ".join(f"`{one.name}` = {one.default:g}: {one.says}" for one in rule.limits)
        story = f"`{rule.story}`" if rule.story else ""
        yield f"| `{rule.name}` | {rule.weight} | {rule.says} | {rule.risk} | {rule.event} | {limits} | {story} |"
