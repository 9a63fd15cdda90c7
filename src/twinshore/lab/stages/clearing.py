"""Leaves a cluster as it was found."""

from __future__ import annotations

import time

from twinshore.fleet import Cluster
from twinshore.lab.clients import admin_of
from twinshore.lab.stages.figures import StageError

_GONE_WITHIN_S = 60.0


def clear(cluster: Cluster, keep: str = "") -> None:
    """Deletes every topic but Kafka's own and `keep`; returns when they are gone."""
    admin = admin_of(cluster)
    deadline = time.monotonic() + _GONE_WITHIN_S
    while True:
        left = [topic for topic in admin.list_topics(timeout=10).topics if topic != keep and not topic.startswith("__")]
        if not left:
            return
        if time.monotonic() > deadline:
            raise StageError(f"cluster {cluster.name} still has {', '.join(sorted(left))}")
        # One that is on its way out answers with an error; what counts is the list.
        for gone in admin.delete_topics(left, operation_timeout=20).values():
            gone.exception(30)
        time.sleep(0.1)
