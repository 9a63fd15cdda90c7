"""All rules about clusters, in report order."""

from __future__ import annotations

from twinshore.advisor.core.model import AdvisorRule
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
