"""Who may write while a switch moves topics: nobody on the old home during the hold, its twin's link alone afterwards,
and on the new home those who had the right on the old one.

What is to be changed of a cluster's rules is in the record, or in the store, before anything of it is done.
"""

from __future__ import annotations

import json
from dataclasses import replace

from twinshore.fleet import KafkaError, Link
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights_requests import create_acls
from twinshore.mirror.follow.reading import principal
from twinshore.store import Store
from twinshore.switch.decision import Done, Outcome, Wait
from twinshore.switch.hands.debts import denied
from twinshore.switch.hands.guarding import Guarding, RulesOf
from twinshore.switch.hands.rights import apply, confirm, confirm_restored, look, restore
from twinshore.switch.held_rights import given, handed_over
from twinshore.switch.record import Record
from twinshore.switch.write_rules import RulesPlan, denial

CONFIRMED_S = 5.0


class Writers:
    """Of one switch. `link` carried the topics from `old` to `new`, `back` carries them from now on."""

    def __init__(self, old: KafkaCluster, new: KafkaCluster, link: Link, back: Link, store: Store) -> None:
        self._old, self._new, self._link, self._back, self._store = old, new, link, back, store

    def deny(self, record: Record) -> Outcome:
        """Done once every broker of the old home enforces that nobody writes; what nobody can enforce is in the
        sentence."""
        if not record.rights:
            owed = denied(self._store, record)  # first: what is paid meanwhile is not among the rules then
            plan = denial(look(self._old, record.names()), owed)
            return Wait(f"what is to be denied on {record.old} is written down first", _with(record, plan))
        plan = _plan_of(record)
        apply(self._old, plan)
        confirm(self._old, plan, within_s=CONFIRMED_S)
        return Done(record, "; ".join(plan.remarks) or f"nobody may write on {self._old.name}")

    def give_back_rights(self, record: Record) -> Outcome:
        """Gives back what `deny` took."""
        if record.rights:
            plan = _plan_of(record)
            restore(self._old, plan)
            confirm_restored(self._old, plan, within_s=CONFIRMED_S)
        return Done(record)

    def given(self, record: Record) -> Outcome:
        """Writers have on the new home the rights that they had on the old one; a guard of the twin goes."""
        Guarding(self._store, record.by).drop(RulesOf(self._new), record.names)
        plan = _plan_of(record)
        rows = self._store.memories.of(self._link.name)
        twins = {topic: self._link.twin_of(topic) for topic in record.names()}
        self._store.memories.forget(handed_over(rows, twins.values()))
        rules = given(rows, twins, denied(self._store, record).union(plan.deny))
        for error in create_acls(self._new, sorted(rules)).values() if rules else ():
            raise error
        return Done(record)

    def guard(self, record: Record) -> Outcome:
        """The link back alone writes to the topics on the old home; only then the denial goes."""
        us = principal(self._back, self._old)
        Guarding(self._store, record.by).add(RulesOf(self._old), us, record.names)
        return self.give_back_rights(record)


def _plan_of(record: Record) -> RulesPlan:
    try:
        return RulesPlan.from_record(json.loads(record.rights)) if record.rights else RulesPlan()
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError("the rules that the switch changed cannot be read from its record") from error


def _with(record: Record, plan: RulesPlan) -> Record:
    return replace(record, rights=json.dumps(plan.as_record(), sort_keys=True))
