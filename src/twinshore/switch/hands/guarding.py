"""A cluster's guard, changed by one process at a time: two would each take away what the other gave, and forget what
the other must give back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twinshore.fleet import KafkaError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.service.clock import wall_ms
from twinshore.service.lease_keeper import LeaseKeeper
from twinshore.store import GuardRow, Store
from twinshore.switch.alone import alone
from twinshore.switch.guards import Guard, anew, is_up, settled
from twinshore.switch.hands import rights
from twinshore.switch.write_rules import RulesPlan, Sight

CONFIRMED_S = 5.0


class Rules(Protocol):
    """The rules of a cluster, as they are and as they shall be."""

    @property
    def name(self) -> str:
        """The cluster's."""
        ...

    def look(self, topics: Iterable[str], us: str) -> Sight: ...

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        """Returns once every broker shows the plan. `may` is asked before each step, and raises where somebody else is
        about to change the rules."""
        ...


class RulesOf:
    """Those of a cluster that is there."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster, self.name = cluster, cluster.name

    def look(self, topics: Iterable[str], us: str) -> Sight:
        """Its rules and topics now."""
        return rights.look(self._cluster, topics, us)

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        """Step by step, and confirmed by every broker."""
        rights.apply(self._cluster, plan, may)
        rights.confirm(self._cluster, plan, within_s=CONFIRMED_S)


class Guarding:
    """The guards that the store knows. `by`: who changes them."""

    def __init__(self, store: Store, by: str) -> None:
        self._store, self._by = store, by

    def known(self, cluster: str) -> Guard:
        """The guard of this cluster, as it was written down last."""
        row = self._store.guards.of(cluster)
        return Guard.from_json(row.guard) if row else Guard()

    def stands(self, rules: Rules, us: str, topics: Iterable[str]) -> bool:
        """Whether these twins are guarded, and nobody was given a right since. Only asks."""
        known = self.known(rules.name)
        if not known.topics.issuperset(topics):
            return False
        sight = rules.look(known.topics, us or known.us)
        return is_up(known, anew(known, sight), sight.acls)

    def add(self, rules: Rules, us: str, more: Callable[[], Iterable[str]]) -> None:
        """Returns once every broker shows the guard of these twins too. `more` is asked once nobody else can change it:
        what holds then decides. KafkaError where the cluster refuses, or another process goes on with it."""
        self._change(rules, us, more, lambda: ())

    def drop(self, rules: Rules, less: Callable[[], Iterable[str]]) -> None:
        """These topics are no twins any more: rules that were changed for them alone are as before. `less` is asked
        again once nobody else can change it."""
        known = self.known(rules.name)
        # Somebody may have been killed once this was written down, and before it was done.
        if known.topics.intersection(less()) or not known.is_settled:
            self._change(rules, "", lambda: (), less)

    def _change(
        self, rules: Rules, us: str, more: Callable[[], Iterable[str]], less: Callable[[], Iterable[str]]
    ) -> None:
        with alone(f"guard of {rules.name}", self._store, self._by) as lease:
            known = self.known(rules.name)
            topics = (known.topics | frozenset(more())).difference(less())
            if not topics and not known.topics and known.is_settled:
                return
            wanted = anew(known, rules.look(topics, us or known.us))
            self._save(rules.name, wanted, lease)
            rules.take(wanted.plan, lambda: _must_be_ours(rules.name, lease))
            self._save(rules.name, settled(wanted), lease)

    def _save(self, cluster: str, guard: Guard, lease: LeaseKeeper) -> None:
        row = lease.row()
        if row is None or not self._store.guards.save(GuardRow(cluster, guard.to_json(), wall_ms()), row):
            raise _lost(cluster)


def _must_be_ours(cluster: str, lease: LeaseKeeper) -> None:
    if lease.row() is None:
        raise _lost(cluster)


def _lost(cluster: str) -> KafkaError:
    return KafkaError(f"{cluster}: another process goes on with the guard of its twins", retriable=True)
