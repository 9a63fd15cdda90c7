"""One lease epoch of a link, and the config of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinshore.config.model import Cluster, Link
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication.incident_watch import PRODUCER_EXPIRY_SETTING
from twinshore.replication.task.core.messages import TaskConfig, coordinator_epoch, limits_from_settings
from twinshore.state.core.values import LinkIdentity


@dataclass(slots=True)
class LeaseEpoch:
    """`identity`: the producer that writes; `flowing`: topics in replication. `units`: prefix of our transactional ids,
    empty when markers are written directly. `never_cut`: twins are never truncated.
    """

    generation: int
    identity: LinkIdentity
    state_expiry_ms: int
    units: str
    never_cut: bool
    flowing: dict[str, tuple[str, int]] = field(default_factory=dict)

    def outdated(self, target: str, state_expiry_ms: int, *, never_cut: bool) -> str:
        """Why tasks must restart with new values; empty: they need not."""
        if state_expiry_ms < self.state_expiry_ms:
            # Producer states that the tasks rely on may have expired: they restart with the new value.
            return f"{PRODUCER_EXPIRY_SETTING} of {target} is shorter now"
        if never_cut == self.never_cut:
            return ""
        return "no record may be cut off from now on" if never_cut else "records may be cut off again"

    def order(
        self,
        link: Link,
        task: int,
        run: int,
        *,
        source: Cluster,
        target: Cluster,
        coordinator: tuple[str, int, str],
        settings: MirrorSettings,
    ) -> TaskConfig:
        """Returns one attempt's config. `coordinator`: the coordinator's host, port and token."""
        host, port, token = coordinator
        return TaskConfig(
            link=self.identity.link,
            task=task,
            run=run,
            source=source,
            target=target,
            source_id=self.identity.source_cluster_id,
            target_id=self.identity.target_cluster_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            state_expiry_ms=self.state_expiry_ms,
            coordinator_host=host,
            coordinator_port=port,
            coordinator_token=token,
            limits=limits_from_settings(settings),
            report_s=settings.progress_s,
            fence=coordinator_epoch(self.generation, run),
            units=self.units,
            never_cut=self.never_cut,
            broadcast=link.broadcast,
            queue=link.queue,
        )
