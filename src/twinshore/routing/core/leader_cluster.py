"""Decides where clients write a topic: its leader, by remembered home records and each cluster's answer.

A cluster that has not answered may have a home record. One table for the proxy and all clients:

| case | remembered | clusters that could have the topic | leader |
| --- | --- | --- | --- |
| a | a home record | any | the record's cluster, until a higher version is read |
| b | none | all answered | the highest version's cluster; without a record, the only copy that is no twin |
| c | none | one is silent, and an answered cluster's copy is a twin | none |
| d | none | one is silent; a record names an answered cluster, or no copy is a twin | that one after `lease_s` |
| e | none | several copies, none a twin | none |

Case d is wrong for a home that is back from a forced switch and has not read of that yet. So case d raises an incident,
and a process with `start = "all"` waits instead. Clusters that cannot have the topic are never waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinshore.routing.core.home_records import HomeVersion


@dataclass(frozen=True, slots=True)
class KnownHome:
    """A home record in short. `cluster`: this process's name for the cluster; unknown names count as elsewhere."""

    cluster: str
    version: HomeVersion


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """One topic on one cluster. `answered`: home records, twin records and topics there were read to the end by this
    process. `could_carry`: a link that admits the topic names the cluster, or links are unknown. `is_twin`:
    `twinshore.twins` there says so, or a one-way link of the topic ends there.
    """

    cluster: str
    answered: bool
    could_carry: bool = True
    has_topic: bool = False
    is_twin: bool = False
    home: KnownHome | None = None


class NoLeaderReason(StrEnum):
    TOPIC = "no cluster has it"
    LEASE = "a cluster that could have it is silent, and is waited for"
    SILENT = "a cluster that could have it is silent, and may be its home"
    SOURCE = "what answered has a twin of it, and its home did not answer"
    ELSEWHERE = "it is at home on a cluster that is not behind this proxy or known to this client"
    CLASH = "clusters say different homes in one version"
    LINK = "several clusters have it, and no link explains which one is its home"


@dataclass(frozen=True, slots=True)
class Leader:
    """The topic's leader. `unheard`: clusters that could contradict and did not answer in time; any is an incident."""

    cluster: str
    unheard: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No cluster takes writes now. `clusters`: those that the reason is about. `wait_s`: the longest wait if time alone
    ends this, else None.
    """

    lacks: NoLeaderReason
    clusters: tuple[str, ...] = ()
    wait_s: float | None = None


LeaderDecision = Leader | NoLeader


def leader_cluster(
    remembered: KnownHome | None,
    copies: Sequence[TopicCopy],
    waited_s: float,
    lease_s: float,
    *,
    start_all: bool = False,
) -> LeaderDecision:
    """Applies the table. `remembered`: from the store, spool or last push. `waited_s`: since this process first asked.
    `start_all` (`start = "all"`): wait without limit for all clusters that could have the topic.
    """
    heard = [copy.home for copy in copies if copy.answered and copy.home is not None]
    highest = max((home.version for home in heard), default=None)
    silent = tuple(copy.cluster for copy in copies if copy.could_carry and not copy.answered)
    if remembered is not None and (highest is None or highest <= remembered.version):
        return _led_to(remembered.cluster, copies)
    if highest is not None:
        homes = sorted({home.cluster for home in heard if home.version == highest})
        if len(homes) > 1:
            return NoLeader(NoLeaderReason.CLASH, tuple(homes))
        if remembered is not None:
            return _led_to(homes[0], copies)
        return _unless_silent(_led_to(homes[0], copies), silent, waited_s, lease_s, start_all)
    return _unless_silent(_by_copies(copies, silent), silent, waited_s, lease_s, start_all)


def _led_to(cluster: str, copies: Sequence[TopicCopy]) -> LeaderDecision:
    known = any(copy.cluster == cluster for copy in copies)
    return Leader(cluster) if known else NoLeader(NoLeaderReason.ELSEWHERE, (cluster,))


def _by_copies(copies: Sequence[TopicCopy], silent: tuple[str, ...]) -> LeaderDecision:
    twins = tuple(copy.cluster for copy in copies if copy.answered and copy.has_topic and copy.is_twin)
    homes = tuple(copy.cluster for copy in copies if copy.answered and copy.has_topic and not copy.is_twin)
    if twins and (silent or not homes):
        return NoLeader(NoLeaderReason.SOURCE, twins)
    if len(homes) > 1:
        return NoLeader(NoLeaderReason.LINK, homes)
    if homes:
        return Leader(homes[0])
    return NoLeader(NoLeaderReason.SILENT, silent) if silent else NoLeader(NoLeaderReason.TOPIC)


def _unless_silent(
    found: LeaderDecision, silent: tuple[str, ...], waited_s: float, lease_s: float, start_all: bool
) -> LeaderDecision:
    """Withholds a leader until silent clusters that could contradict were waited for, where nothing is remembered."""
    if not silent or not isinstance(found, Leader):
        return found
    if start_all or found.cluster in silent:
        return NoLeader(NoLeaderReason.SILENT, silent)
    if waited_s < lease_s:
        return NoLeader(NoLeaderReason.LEASE, silent, lease_s - waited_s)
    return Leader(found.cluster, silent)


def describe_decision(topic: str, decision: LeaderDecision) -> str:
    """Explains the decision, for logs and errors."""
    if isinstance(decision, NoLeader):
        which = f": {', '.join(decision.clusters)}" if decision.clusters else ""
        return f"topic {topic} has no known home: {decision.lacks.value}{which}"
    if decision.unheard:
        silent = f"though {', '.join(decision.unheard)} did not answer"
        homes = "if a forced switch moved it, it has two homes"
        return f"topic {topic} is written on {decision.cluster} {silent}: {homes}"
    return f"topic {topic} is written on {decision.cluster}"
