"""All rules in report order, and the tables of rules on docs/advisor.md and docs/client-audit.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinshore.advisor.core.clients.client_rules import CLIENT_RULES
from twinshore.advisor.core.model import SHARED_LIMITS, AdvisorRule, RuleLimit
from twinshore.advisor.core.rules.cluster_rules import BROKER_RULES, GROUP_RULES, LINK_RULES
from twinshore.advisor.core.rules.topic_rules import INTERNAL_RULES, PARTITION_RULES, TOPIC_RULES

RULES: tuple[AdvisorRule, ...] = (
    *PARTITION_RULES,
    *TOPIC_RULES,
    *INTERNAL_RULES,
    *GROUP_RULES,
    *LINK_RULES,
    *BROKER_RULES,
)

TABLE_BEGIN, TABLE_END = "<!-- rules -->\n", "<!-- end of rules -->\n"


def update_rules_table(page: str) -> str:
    shared = "\n".join(f"- `{limit.name}` = {limit.default:g}: {limit.says}" for limit in SHARED_LIMITS)
    rows = (
        (_code(rule.name), rule.severity, rule.says, rule.risk, rule.event, _limits(rule.limits), _code(rule.story))
        for rule in RULES
    )
    names = ("rule", "severity", "it is found where", "at risk", "when", "limits", "story")
    return _with(page, f"In `[limits]`, for all rules:\n\n{shared}\n\n{_table(names, rows)}")


def update_client_rules_table(page: str) -> str:
    rows = (
        (_code(rule.name), rule.severity, rule.says, rule.costs, "; ".join(rule.settings), _limits(rule.limits))
        for rule in CLIENT_RULES
    )
    return _with(page, _table(("rule", "severity", "it is found where", "it costs", "settings", "limits"), rows))


def _with(page: str, told: str) -> str:
    head, _, rest = page.partition(TABLE_BEGIN)
    return f"{head}{TABLE_BEGIN}\n{told}\n\n{TABLE_END}{rest.partition(TABLE_END)[2]}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(names), " | ".join(["---"] * len(names)), *map(" | ".join, rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _code(name: str) -> str:
    return name and f"`{name}`"


def _limits(limits: Iterable[RuleLimit]) -> str:
    return "; ".join(f"`{limit.name}` = {limit.default:g}: {limit.says}" for limit in limits)
