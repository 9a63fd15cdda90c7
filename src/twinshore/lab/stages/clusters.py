"""Clusters for a bench: their brokers' JVMs as Kafka's own start script sets them, since what brokers cost decides how
fast any copier can be. The lab's own setting is for many small clusters on a small machine."""

from __future__ import annotations

from twinshore.lab import LabCluster

# What `kafka-run-class.sh` sets where the user sets nothing, for brokers and MirrorMaker alike.
KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_HEAP_MB = 1024  # `kafka-server-start.sh`
_AS_SHIPPED = ("-XX:-UseSerialGC", *KAFKA_JVM, f"-Xms{_HEAP_MB}m", f"-Djdk.nio.maxCachedBufferSize={2**63 - 1}")
# Deleted topics leave the disk soon; else one run's rubbish is written back during the next.
_SETTINGS = {"file.delete.delay.ms": "1000"}


def bench_cluster(name: str, *, brokers: int = 1, via_proxy: bool = False) -> LabCluster:
    """A cluster to measure on, not started yet."""
    return LabCluster(
        name, brokers=brokers, settings=_SETTINGS, heap_mb=_HEAP_MB, jvm_flags=_AS_SHIPPED, via_proxy=via_proxy
    )
