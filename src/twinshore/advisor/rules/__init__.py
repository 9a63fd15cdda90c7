"""All `rules`, in the order of the report. Pure: a rule is a row, `judge` its one small function.

What was seen enters, where a rule's case is so leaves.
"""

from twinshore.advisor.rule import Rule
from twinshore.advisor.rules.brokers import BROKER_RULES
from twinshore.advisor.rules.groups import GROUP_RULES
from twinshore.advisor.rules.links import LINK_RULES
from twinshore.advisor.rules.partitions import PARTITION_RULES
from twinshore.advisor.rules.topics import INTERNAL_RULES, TOPIC_RULES

RULES: tuple[Rule, ...] = (*PARTITION_RULES, *TOPIC_RULES, *INTERNAL_RULES, *GROUP_RULES, *LINK_RULES, *BROKER_RULES)

__all__ = ["RULES"]
