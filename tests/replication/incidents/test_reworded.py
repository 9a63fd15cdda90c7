"""What a row does is its columns' to say: reword every sentence of a ledger, and the same partitions rest."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update

from twinshore.config.incident_policy import (
    POLICY_NOT_TRUNCATED,
    POLICY_RETRY,
    POLICY_STOP,
    POLICY_TOPIC,
    IncidentKind,
    is_transient,
)
from twinshore.config.model import Link, Secret
from twinshore.monitoring.sampler import find_stopped_partitions
from twinshore.proof.core.partition_scan import find_unreplicated_topics
from twinshore.replication.metrics import refused_topics
from twinshore.replication.stopped_partitions import are_retried, read_stopped_partitions
from twinshore.state.core.values import Incident
from twinshore.state.database import Database
from twinshore.state.store import Store, open_store
from twinshore.state.tables import incidents

LINK = Link("east", "west")
ELSE = "said in words that no version ever wrote"


def every_row() -> list[Incident]:
    """Of each kind a partition's row and a topic's, by each policy."""
    special = (POLICY_STOP, POLICY_RETRY, POLICY_TOPIC, POLICY_NOT_TRUNCATED)
    found = []
    for kind in IncidentKind:
        for policy in {kind.policy, *special}:
            topic = f"{kind.name.lower()}-{policy.effect}"
            found += [Incident(LINK.name, topic, part, kind, 5, 9, policy, "why", kind.side) for part in (0, -1)]
    return found


def decided(store: Store) -> dict[str, object]:
    """All that is read out of a ledger to decide by."""
    rows = store.incidents.rows(LINK.name, open_only=True)
    stopped = read_stopped_partitions(store, LINK.name)
    return {
        "stopping": {named: [row.id for row in found] for named, found in stopped.items()},
        "retried": {named for named, found in stopped.items() if are_retried(found)},
        "refused": refused_topics(store, LINK.name),
        "resting": find_stopped_partitions(LINK, rows)[1],
        "uncrossed": {
            one.topic for one in find_unreplicated_topics(LINK, {row.incident.topic for row in rows}, (), rows)
        },
        "passing": {row.id for row in rows if is_transient(row.incident.kind, row.incident.policy)},
    }


def test_no_sentence_decides(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        for one in every_row():
            store.incidents.add(one, now_ms=1)
        before = decided(store)
        assert all(before.values()), "each has something to decide"
        database = Database(url, Secret())
        reworded = update(incidents).values(words=ELSE, sentence=ELSE)
        assert database.write(lambda connection: connection.execute(reworded)).rowcount == len(every_row())
        database.close()
        assert decided(store) == before
