"""The guard of a cluster: which twins there are kept from all writers but their link, and which rules were changed for
that. Pure. It travels as JSON.

A cluster has one guard for all its twins, since a rule may speak of several. It is looked at again and again: whoever
is given the right to write meanwhile is kept out by the next look.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from twinshore.fleet import WireError
from twinshore.kafka.rights import Acl
from twinshore.switch.write_rules import RulesPlan, Sight, guard


@dataclass(frozen=True, slots=True)
class Guard:
    """`topics`: the twins; `us`: whom the authorizer takes their link for; `plan`: what was changed, or is about to
    be; `up`: the twins that were seen to be guarded since, on every broker."""

    topics: frozenset[str] = frozenset()
    us: str = ""
    plan: RulesPlan = field(default_factory=RulesPlan)
    up: frozenset[str] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is still to be taken back."""
        return not self.plan.over and not self.plan.back

    @property
    def left_open(self) -> frozenset[str]:
        """The twins that anybody may write to though rules could keep him out."""
        return frozenset(self.plan.open_to_all if self.plan.ruled else ())

    def to_json(self) -> str:
        raw = {"topics": sorted(self.topics), "us": self.us, "plan": self.plan.as_record(), "up": sorted(self.up)}
        return json.dumps(raw, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Guard:
        """WireError where it is none."""
        try:
            raw: dict[str, Any] = json.loads(text)
            topics, up = frozenset(raw["topics"]), frozenset(raw.get("up", ()))
            return Guard(topics, str(raw["us"]), RulesPlan.from_record(raw["plan"]), up)
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("the guard of a cluster cannot be read from the store") from error


def anew(known: Guard, sight: Sight) -> Guard:
    """The guard for the topics of `sight`, in place of the one that is known. Where somebody has changed its rules,
    nothing of it counts as up until it is seen again."""
    up = known.up & sight.topics if known.plan.stands(sight.acls or ()) else frozenset[str]()
    return Guard(sight.topics, sight.us, guard(sight, known.plan), up)


def settled(done: Guard) -> Guard:
    """Once every broker shows it. What it took back of earlier guards is forgotten: a rule that looks like one of these
    from now on is somebody else's."""
    return replace(done, plan=replace(done.plan, over=(), back=()), up=done.topics - done.left_open)


def is_up(known: Guard, wanted: Guard, acls: Collection[Acl] | None) -> bool:
    """Whether nothing is to be done."""
    return known == wanted == settled(wanted) and wanted.plan.stands(acls or ())
