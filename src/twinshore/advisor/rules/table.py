"""All rules, in the order of the report."""

from twinshore.advisor.rule import Rule
from twinshore.advisor.rules.brokers import BROKER_RULES
from twinshore.advisor.rules.groups import GROUP_RULES
from twinshore.advisor.rules.links import LINK_RULES
from twinshore.advisor.rules.partitions import PARTITION_RULES
from twinshore.advisor.rules.topics import INTERNAL_RULES, TOPIC_RULES

RULES: tuple[Rule, ...] = (*PARTITION_RULES, *TOPIC_RULES, *INTERNAL_RULES, *GROUP_RULES, *LINK_RULES, *BROKER_RULES)
