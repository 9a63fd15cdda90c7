"""The two clusters of a link, each with connections of its own, for whoever has something to ask both."""

from __future__ import annotations

import time
from collections.abc import Callable

from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import CALL_S, PATIENCE_S, KafkaCluster


class Ends:
    """`source` and `target` dial when they are first asked. One thread at a time; `close`, or the block's end, ends
    their connections."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        *,
        client_id: str = "twinshore",
        patience_s: float = PATIENCE_S,
        call_s: float = CALL_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.source, self.target = (
            KafkaCluster(settings.cluster(name), client_id=client_id, patience_s=patience_s, call_s=call_s, sleep=sleep)
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
