"""What befalls a cluster of one broker for a while, and is mended at the end, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinshore.lab import LabCluster


@contextmanager
def dead(cluster: LabCluster) -> Iterator[None]:
    """Killed, and started again."""
    cluster.brokers[0].kill()
    try:
        yield
    finally:
        cluster.brokers[0].restart()


@contextmanager
def stalled(cluster: LabCluster) -> Iterator[None]:
    """Paused: its connections stand, and nothing comes."""
    cluster.brokers[0].pause()
    try:
        yield
    finally:
        cluster.brokers[0].resume()


@contextmanager
def on_slow_line(cluster: LabCluster, bytes_s: float) -> Iterator[None]:
    """Behind a line of so many bytes a second."""
    cluster.proxy(0).set_bandwidth(bytes_s)
    try:
        yield
    finally:
        cluster.proxy(0).set_bandwidth(0)
