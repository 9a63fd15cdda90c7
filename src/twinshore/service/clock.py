"""The clocks, as the rooms above know them; the client side ships without this room and asks `kafka/clock.py`."""

from __future__ import annotations

from twinshore.kafka.clock import steady_s, wall_ms

__all__ = ["steady_s", "wall_ms"]
