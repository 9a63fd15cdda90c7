"""One holding of a link's lease: what its pumps are told stands for as long. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinshore.config.model import Cluster, Link
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.replication.incidents.watch import PRODUCER_EXPIRY_SETTING
from twinshore.replication.task.core.config import TaskConfig, coordinator_epoch, limits_from_settings
from twinshore.state.core.values import LinkIdentity


@dataclass(slots=True)
class LeaseEpoch:
    """Who we write as, what flows, on which lane. `units`: what our transactional ids begin with, empty where markers
    are written directly. `never_cut`: no record of a twin is cut off."""

    generation: int
    identity: LinkIdentity
    state_expiry_ms: int
    units: str
    never_cut: bool
    flowing: dict[str, tuple[str, int]] = field(default_factory=dict)

    def outdated(self, target: str, state_expiry_ms: int, *, never_cut: bool) -> str:
        """Why pumps must begin anew with what holds now; empty where they need not."""
        if state_expiry_ms < self.state_expiry_ms:
            # What they believe to be remembered may be forgotten: they begin anew, and know better.
            return f"{PRODUCER_EXPIRY_SETTING} of {target} is shorter now"
        if never_cut == self.never_cut:
            return ""
        return "no record may be cut off from now on" if never_cut else "records may be cut off again"

    def order(
        self,
        link: Link,
        lane: int,
        tide: int,
        *,
        source: Cluster,
        target: Cluster,
        desk: tuple[str, int, str],
        settings: MirrorSettings,
    ) -> TaskConfig:
        """What a tide of this lane is told. `desk`: its host, port and token."""
        host, port, token = desk
        return TaskConfig(
            link=self.identity.link,
            lane=lane,
            tide=tide,
            source=source,
            target=target,
            source_id=self.identity.source_cluster_id,
            target_id=self.identity.target_cluster_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            state_expiry_ms=self.state_expiry_ms,
            desk_host=host,
            desk_port=port,
            desk_token=token,
            limits=limits_from_settings(settings),
            report_s=settings.receipts_s,
            fence=coordinator_epoch(self.generation, tide),
            units=self.units,
            never_cut=self.never_cut,
            broadcast=link.broadcast,
            queue=link.queue,
        )
