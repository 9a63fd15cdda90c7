"""Standing clusters that go dark and come back: `twinshore lab stop` and `start`. Their data and addresses stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from twinshore.fleet import Cluster, ConfigError
from twinshore.lab.archive import archive_flags
from twinshore.lab.broker import LabBroker
from twinshore.lab.clients import wait_for_brokers
from twinshore.lab.cluster import HEAP_MB
from twinshore.lab.jars import kafka_classpath
from twinshore.lab.standing import StandingCluster, kill_brokers, locked, standing


def go_dark(folder: Path, names: Sequence[str], *, tell: Callable[[str], None], dry_run: bool = False) -> int:
    """Kills the brokers of these clusters, as a power cut does; returns how many clusters lived."""
    folder = folder.absolute()
    with locked(folder, dry_run=dry_run):
        chosen = [one for one in _chosen(folder, names) if any(broker.alive for broker in one.brokers)]
        for one in chosen:
            tell(f"stopping {one.name}: its data stays, and `twinshore lab start {one.name}` brings it back")
            if not dry_run:
                kill_brokers(Path(one.folder))
    return len(chosen)


def come_back(folder: Path, names: Sequence[str], *, tell: Callable[[str], None], dry_run: bool = False) -> int:
    """Starts the brokers of these clusters that do not run, on their data and at their addresses; returns how many
    clusters lacked some."""
    folder = folder.absolute()
    with locked(folder, dry_run=dry_run):
        chosen = [one for one in _chosen(folder, names) if one.state != "up"]
        if cut := [one.name for one in chosen if not one.bootstrap]:
            raise ConfigError(f"cluster {cut[0]} never came up whole", hint="twinshore lab down, then up again")
        for one in chosen:
            tell(f"starting {one.name} again: Kafka {one.version}, with the data that it had")
            if not dry_run:
                _start(one)
    return len(chosen)


def _chosen(folder: Path, names: Sequence[str]) -> list[StandingCluster]:
    there = {one.name: one for one in standing(folder)}
    for name in names:
        if name not in there:
            hint = f"there are: {', '.join(there) or 'none'}"
            raise ConfigError(f"no cluster {name} stands in {folder}", hint=hint)
    return [there[name] for name in names]


def _start(one: StandingCluster) -> None:
    classpath, cluster = kafka_classpath(one.version), Cluster(one.name, one.bootstrap)
    brokers = [
        LabBroker(
            node_id=was.node_id,
            port=int(address.rpartition(":")[2]),
            folder=Path(one.folder) / f"broker-{was.node_id}",
            classpath=classpath,
            settings=_settings(Path(one.folder) / f"broker-{was.node_id}"),
            heap_mb=HEAP_MB,
            jvm_flags=archive_flags(one.version),
            registered=lambda node_id: wait_for_brokers(cluster, {node_id}),
            detached=True,
        )
        for was, address in zip(one.brokers, one.bootstrap, strict=True)
        if not was.alive
    ]
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_ready()
    wait_for_brokers(cluster, {was.node_id for was in one.brokers})


def _settings(folder: Path) -> dict[str, str]:
    """What the broker was started with."""
    lines = (folder / "server.properties").read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
