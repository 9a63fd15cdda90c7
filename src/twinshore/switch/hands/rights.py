"""A denial or a guard, put up, seen to stand on every broker, and taken down.

Whoever is killed here goes on with the same plan: it was written down before anything was done. The answer to a new
rule is the controller's; each broker hears of it by itself, and enforces what it shows. What a broker let in before it
is appended after it all the same, so ends that are read at once may still move.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from twinshore.fleet import KafkaError
from twinshore.fleet.sentences import listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl
from twinshore.kafka.rights_requests import create_acls, delete_acls, may_alter, read_acls
from twinshore.mirror.follow.reading import open_unless_ruled
from twinshore.switch.write_rules import RulesPlan, Sight, Step

CONFIRMED_S_MAX = 20.0
PAUSE_S = 0.02
NAMED_MAX = 5


def look(cluster: KafkaCluster, topics: Iterable[str], us: str = "") -> Sight:
    """The cluster as plans want to see it. KafkaError where we may not read its rules or not change them: then nothing
    is begun."""
    acls = read_acls(cluster)
    if acls is None:
        return Sight(cluster.name, None, frozenset(topics), frozenset(), us)
    if not may_alter(cluster):
        raise KafkaError(
            f"{cluster.name}: we may not change its ACLs, so nobody can be kept from writing there",
            hint="grant Alter on the cluster",
        )
    exist = frozenset(cluster.metadata(refresh=True).topics)
    return Sight(cluster.name, acls, frozenset(topics), exist, us, open_unless_ruled(cluster))


def apply(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """KafkaError where a rule is refused: what comes after it is not done. Restore the plan, or apply it again. `may`
    is asked before each step, and raises where it is not to be done any more."""
    _take(cluster, plan.doing(), may)


def restore(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """The rules are as before the plan, but for what others changed meanwhile. Also where it was done in part. `may` as
    with `apply`."""
    _take(cluster, plan.restoring(), may)


def confirm(cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRMED_S_MAX) -> Mapping[int, float]:
    """Returns once each broker of the cluster enforces the plan: after how many seconds each showed it. KafkaError
    (retriable) where one does not in time. One that is silent is asked for as long as `cluster` has patience, which is
    to be little here, and again until the cluster itself gives it up."""
    return _shown(cluster, plan.stands, within_s)


def confirm_restored(
    cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRMED_S_MAX
) -> Mapping[int, float]:
    """The same of the rules as they are after `restore`."""
    return _shown(cluster, plan.restored, within_s)


def _take(cluster: KafkaCluster, steps: Iterable[Step], may: Callable[[], None] = lambda: None) -> None:
    for step in steps:
        may()
        refused = (create_acls if step.add else delete_acls)(cluster, step.acls)
        for error in refused.values():
            raise error


def _shown(cluster: KafkaCluster, holds: Callable[[Collection[Acl]], bool], within_s: float) -> Mapping[int, float]:
    began_s = time.monotonic()
    shown: dict[int, float] = {}
    silent = ""
    while True:
        # Asked each time: a broker that has come meanwhile may lead what is denied.
        nodes = set(cluster.metadata([], refresh=True).brokers)
        for node in sorted(nodes - shown.keys()):
            try:
                if holds(read_acls(cluster, node) or ()):
                    shown[node] = time.monotonic() - began_s
            except KafkaError as error:
                if not error.retriable:
                    raise
                silent = f": {error.message}"
        late = sorted(nodes - shown.keys())
        if not late:
            return shown
        if time.monotonic() - began_s >= within_s:
            names = listed([str(node) for node in late], NAMED_MAX)
            raise KafkaError(
                f"{cluster.name}: after {within_s:g} s broker {names} does not show the changed rules{silent}",
                retriable=True,
                hint="see whether it follows its controller",
            )
        time.sleep(PAUSE_S)
