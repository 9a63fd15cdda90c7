"""What runs inside Spark: one task, for a tide of one lane or of a raft."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

# So many more objects than before that the collector looks at them. A pump leaves no cycles behind, and batches that
# wait to be sent are some ten objects each.
OBJECTS_UNTIL_COLLECTED = 10_000


def spare_the_collector() -> None:
    """What is loaded by now stays, and what waits is no garbage: the collector walks the one never and the other
    seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTED)


def carry(orders: Iterable[str]) -> Iterator[str]:
    """The body of a tide's only task. Yields the sentence that says how each tide ended."""
    # Imported here: the driver ships this function without loading the pump.
    from twinshore.mirror.core.desk_words import RaftOrder, order_of
    from twinshore.mirror.pump.lines import DeskLost
    from twinshore.mirror.pump.loop import Pump
    from twinshore.mirror.pump.raft import Raft
    from twinshore.service.compiling import build_beside

    build_beside()
    spare_the_collector()
    for text in orders:
        order = order_of(text)
        try:
            yield Raft(order).run() if isinstance(order, RaftOrder) else Pump(order).run()
        except DeskLost as error:  # it stopped, or is out of reach, before this tide began
            yield error.message
