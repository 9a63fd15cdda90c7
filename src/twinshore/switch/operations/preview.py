"""What a plan says of both clusters before anybody is held: whom nothing can hold, and what a switch would lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinshore.fleet import KafkaError, RefusedError
from twinshore.fleet.sentences import have, listed
from twinshore.fleet.settings import Settings
from twinshore.kafka.broker_answers import read_disks
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights_requests import may_alter, read_acls
from twinshore.mirror.incidents.watch_rules import Room, disks_in_words, rooms
from twinshore.switch.hands.rights import look
from twinshore.switch.old_homes import of_old_home
from twinshore.switch.write_rules import denial

NAMED_MAX = 5
MIN_ISR = "min.insync.replicas"


def unheld(old: KafkaCluster, topics: Sequence[str]) -> tuple[str, ...]:
    """Who may write though writers are held; no broker tells who its super users are. KafkaError where we may not read
    rules, or not change them."""
    remarks = denial(look(old, topics)).remarks
    watched = ("where an end moves while writers are held, the switch turns back",) if remarks else ()
    return (*remarks, *watched)


def left_open(old: KafkaCluster, topics: Sequence[str], away: str) -> str:
    """Whether writers can be kept from what a forced switch leaves on the old home. `away`: why it cannot be asked."""
    try:
        ruled = None if away else read_acls(old) is not None
    except KafkaError:
        ruled = None
    return of_old_home(old.name, topics, ruled=ruled)


def lacking(old: KafkaCluster, new: KafkaCluster, topics: Sequence[str]) -> RefusedError | None:
    """What a later deed would lack, found before anything is begun."""
    for cluster in (old, new):
        if read_acls(cluster) is not None and not may_alter(cluster):
            return RefusedError(
                f"the switch may not change rules of {cluster.name}",
                hint=f"grant the mirror's user Alter on the cluster {cluster.name}",
            )
    return unready(new, topics)


def unready(new: KafkaCluster, topics: Sequence[str]) -> RefusedError | None:
    """Whether the new home's partitions would take writes at all, also those that ask for all replicas."""
    seen = {name: one for name, one in new.metadata(sorted(topics), refresh=True).topics.items() if not one.error}
    unled = [f"{name}-{part.partition}" for name, one in seen.items() for part in one.partitions if part.leader < 0]
    if unled:
        return RefusedError(f"{listed(unled, NAMED_MAX)} {have(unled)} no leader on {new.name}")
    settings, _ = new.admin.readable_settings(sorted(seen), (MIN_ISR,))
    least = {name: int(one[MIN_ISR].value or 1) for name, one in settings.items() if MIN_ISR in one}
    short = [
        f"{name}-{part.partition} ({len(part.isr)} of {least[name]})"
        for name, one in seen.items()
        for part in one.partitions
        if len(part.isr) < least.get(name, 1)
    ]
    if short:
        return RefusedError(
            f"{listed(short, NAMED_MAX)} on {new.name} has too few replicas in sync: acks=all would be refused there",
            hint=f"wait until its brokers are back, or lower {MIN_ISR} of these topics",
        )
    return None


@dataclass(frozen=True, slots=True)
class Cramped:
    """`words` of brokers with little room, empty where all have enough. `full`: one has so little that the mirror
    writes nothing to twins there."""

    words: str = ""
    full: bool = False

    def refused(self) -> RefusedError | None:
        hint = "make room there first, or lower disk_pause_percent of the mirror's settings"
        return RefusedError(self.words, hint=hint) if self.full else None


def cramped(cluster: KafkaCluster, topics: Sequence[str], settings: Settings) -> Cramped:
    """How much room the brokers have that hold these topics; nothing is said where they do not tell, or where nobody
    wants their disks watched."""
    warn, pause = settings.mirror.disk_warn_percent, settings.mirror.disk_pause_percent
    if not warn:
        return Cramped()
    try:
        seen = cluster.metadata(sorted(topics), refresh=True).topics.values()
        nodes = sorted({node for one in seen if not one.error for part in one.partitions for node in part.replicas})
        disks = [disk for node in nodes for disk in read_disks(cluster, node)]
    except KafkaError as error:
        if error.retriable:
            raise
        return Cramped()
    now = rooms(disks, {}, warn_percent=warn, pause_percent=pause)
    return Cramped(disks_in_words(cluster.name, disks, now), Room.NONE in now.values())
