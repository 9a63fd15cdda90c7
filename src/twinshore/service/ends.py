"""The two clusters of a link, for whoever has something to ask both: by connections of its own, or by shared ones."""

from __future__ import annotations

import time
from collections.abc import Callable

from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import CALL_S, PATIENCE_S, KafkaCluster
from twinshore.service.connections import Shared


class Ends:
    """`source` and `target` dial when they are first asked. One thread at a time; `close`, or the block's end, ends
    their connections, of shared ones those that nobody else asks by."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        client_id: str = "twinshore",
        patience_s: float = PATIENCE_S,
        call_s: float = CALL_S,
        sleep: Callable[[float], None] = time.sleep,
        shared: Shared | None = None,
    ) -> None:
        self.source, self.target = (
            KafkaCluster(
                settings.cluster(name),
                client_id=shared.client_id if shared else client_id,
                patience_s=patience_s,
                call_s=call_s,
                sleep=sleep,
                pool=shared.pool if shared else None,
            )
            for name in (link.source, link.target)
        )

    def close(self) -> None:
        """Ends both clusters' connections."""
        self.source.close()
        self.target.close()

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
