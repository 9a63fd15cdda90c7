"""What runs inside Spark: one task, one lane, one tide."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator


def carry(orders: Iterable[str]) -> Iterator[str]:
    """The body of a tide's only task. Yields the sentence that says how each tide ended."""
    # Imported here: the driver ships this function without loading the pump.
    from twinshore.mirror.lane.orders import TideOrder
    from twinshore.mirror.pump.desk_line import DeskLost
    from twinshore.mirror.pump.loop import Pump
    from twinshore.service.compiling import build_beside

    build_beside()
    # What is loaded by now stays: the collector need not walk it while batches wait.
    gc.collect()
    gc.freeze()
    for text in orders:
        try:
            yield Pump(TideOrder.from_json(text)).run()
        except DeskLost as error:  # it stopped, or is out of reach, before this tide began
            yield error.message
