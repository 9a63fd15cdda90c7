"""All rules, in the order of the report.

The tables of rules on docs/advisor.md and docs/conduct.md, as the rules have them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinshore.advisor.core.clients.rules import HABITS
from twinshore.advisor.core.model import SHARED, Limit, Rule
from twinshore.advisor.core.rules.clusters import BROKER_RULES, GROUP_RULES, LINK_RULES
from twinshore.advisor.core.rules.topics import INTERNAL_RULES, PARTITION_RULES, TOPIC_RULES

RULES: tuple[Rule, ...] = (*PARTITION_RULES, *TOPIC_RULES, *INTERNAL_RULES, *GROUP_RULES, *LINK_RULES, *BROKER_RULES)

BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->\n"


def with_rules(page: str) -> str:
    """The page with the table of rules as the code has them."""
    shared = "\n".join(f"- `{one.name}` = {one.default:g}: {one.says}" for one in SHARED)
    rows = (
        (_code(one.name), one.weight, one.says, one.risk, one.event, _limits(one.limits), _code(one.story))
        for one in RULES
    )
    names = ("rule", "weight", "it is found where", "at risk", "when", "limits", "story")
    return _with(page, f"In `[limits]`, for all rules:\n\n{shared}\n\n{_table(names, rows)}")


def with_habits(page: str) -> str:
    """The page with the table of habits as the code has them."""
    rows = (
        (_code(one.name), one.weight, one.says, one.costs, "; ".join(one.settings), _limits(one.limits))
        for one in HABITS
    )
    return _with(page, _table(("rule", "weight", "it is found where", "it costs", "settings", "limits"), rows))


def _with(page: str, told: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{told}\n\n{END}{rest.partition(END)[2]}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(names), " | ".join(["---"] * len(names)), *map(" | ".join, rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _code(name: str) -> str:
    return name and f"`{name}`"


def _limits(limits: Iterable[Limit]) -> str:
    return "; ".join(f"`{one.name}` = {one.default:g}: {one.says}" for one in limits)
