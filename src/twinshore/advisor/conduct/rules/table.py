"""All rules about habits, in the order of the report."""

from twinshore.advisor.conduct.rule import HabitRule
from twinshore.advisor.conduct.rules.asking import ASKING_RULES
from twinshore.advisor.conduct.rules.consumers import CONSUMER_RULES
from twinshore.advisor.conduct.rules.producers import PRODUCER_RULES

HABITS: tuple[HabitRule, ...] = (*PRODUCER_RULES, *CONSUMER_RULES, *ASKING_RULES)
