"""Clusters that outlive their command: `twinshore lab up`, `status`, `stop`, `start` and `down`.

Each has a folder before its first broker runs, with the identity of each broker's process. So `down` ends what a killed
`up` began, and never a process that reuses a pid.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.config.sentences import Tell
from twinshore.lab.clients import wait_for_brokers
from twinshore.lab.cluster import HEAP_MB, LabBroker, LabCluster, archive_flags, check_brokers, read_process_identity
from twinshore.lab.jars import KAFKA_NEWEST, cache_folder, fetch_kafka_classpath
from twinshore.lab.processes import ProcessIdentity

_STATE = "cluster.json"
_OURS = ".twinshore-cluster"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


@dataclass(frozen=True, slots=True)
class BackgroundBroker:
    node_id: int
    pid: int
    alive: bool


@dataclass(frozen=True, slots=True)
class BackgroundCluster:
    """`state`: up, partly up, down (the processes have died), or half started (`up` was interrupted)."""

    name: str
    version: str
    state: str
    bootstrap: tuple[str, ...]
    folder: str
    brokers: tuple[BackgroundBroker, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def default_folder() -> Path:
    return cache_folder() / "lab"


def list_background_clusters(folder: Path) -> list[BackgroundCluster]:
    """The folder's clusters by name. Foreign folders do not count."""
    folder = folder.absolute()
    return [_look(one) for one in sorted(folder.glob("*")) if _is_ours(one)] if folder.is_dir() else []


def bring_up(
    folder: Path,
    names: Sequence[str],
    *,
    brokers: int = 1,
    version: str = KAFKA_NEWEST,
    tell: Tell,
    dry_run: bool = False,
) -> list[BackgroundCluster]:
    """Starts the named clusters that are not up; returns them all. Refuses one whose brokers have died, which keeps its
    data.
    """
    folder = folder.absolute()
    _check(folder, names)
    check_brokers(brokers)
    with hold_folder_lock(folder, dry_run=dry_run):
        there = {cluster.name: cluster for cluster in list_background_clusters(folder)}
        for name in names:
            found = there.get(name)
            if found and found.state not in ("up", "down"):
                raise ConfigError("lab.incomplete-start", cluster=name, state=found.state)
            if found and found.state == "down" and found.bootstrap:
                raise ConfigError("lab.cluster-down", cluster=name, folder=str(folder))
            if found and found.state == "up" and (len(found.brokers), found.version) != (brokers, version):
                raise ConfigError("lab.already-up", cluster=name, version=found.version, brokers=len(found.brokers))
        for name in names:
            found = there.get(name)
            if found and found.state == "up":
                tell(f"{name} is up already")
                continue
            tell(f"starting {name}: Kafka {version}, {brokers} broker{'s' * (brokers > 1)}")
            if dry_run:
                continue
            if found:
                _end(Path(found.folder))
            _start(folder / name, brokers, version)
        stand = {cluster.name: cluster for cluster in list_background_clusters(folder)}
        return [stand[name] for name in names if name in stand]


def bring_down(folder: Path, names: Sequence[str] = (), *, tell: Tell, dry_run: bool = False) -> int:
    """Ends the named clusters, or all, and removes their data. Returns how many there were."""
    folder = folder.absolute()
    if not folder.is_dir():
        return 0
    with hold_folder_lock(folder, dry_run=dry_run):
        chosen = _chosen(folder, names) if names else list_background_clusters(folder)
        for cluster in chosen:
            tell(f"ending {cluster.name}")
            if not dry_run:
                _end(Path(cluster.folder))
    return len(chosen)


def settings_snippet(clusters: Sequence[BackgroundCluster]) -> str:
    lines = []
    for cluster in clusters:
        addresses = ", ".join(f'"{address}"' for address in cluster.bootstrap)
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = [{addresses}]", ""]
    if len(clusters) > 1:
        lines += [f'[links."{clusters[0].name}->{clusters[1].name}"]', 'topics = [".*"]', ""]
    return "\n".join(lines)


def _start(folder: Path, brokers: int, version: str) -> None:
    cluster = LabCluster(folder.name, version=version, brokers=brokers, folder=folder, detached=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _OURS).touch()
    try:
        cluster.start()
        state = {"version": version, "bootstrap": cluster.bootstrap}
        (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")
    except BaseException:
        _end(folder)
        raise


def kill_brokers(folder: Path) -> None:
    """Kills the cluster's brokers; the data stays."""
    for _, identity in _marks(folder):
        identity.end()


def _end(folder: Path) -> None:
    kill_brokers(folder)
    # The leftovers of a killed removal must still be recognised.
    (folder / _OURS).touch()
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _OURS:
            entry.unlink()
    shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    # `down` deletes these folders: only the mark of `up` counts, however similar another folder looks.
    return not folder.is_symlink() and folder.is_dir() and (folder / _OURS).is_file()


def _state(folder: Path) -> tuple[str, tuple[str, ...]]:
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        return str(state["version"]), tuple(str(address) for address in state["bootstrap"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ()


def _look(folder: Path) -> BackgroundCluster:
    brokers = tuple(BackgroundBroker(node_id, identity.pid, identity.alive()) for node_id, identity in _marks(folder))
    version, bootstrap = _state(folder)
    living = sum(broker.alive for broker in brokers)
    if not bootstrap:
        word = "half started" if living else "down"
    else:
        word = "up" if living == len(brokers) else "partly up" if living else "down"
    return BackgroundCluster(folder.name, version, word, bootstrap, str(folder), brokers)


def _marks(folder: Path) -> Iterator[tuple[int, ProcessIdentity]]:
    for broker in sorted(folder.glob("broker-*")):
        node_id = broker.name.removeprefix("broker-")
        identity = read_process_identity(broker)
        if identity is not None and node_id.isdecimal():
            yield int(node_id), identity


def _check(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError("lab.invalid-cluster-name", cluster=name)
    if len(set(names)) != len(names):
        raise ConfigError("lab.cluster-named-twice", clusters=",".join(names))
    for place in (folder / name for name in names):
        if (place.exists() or place.is_symlink()) and not _is_ours(place) and not _is_empty(place):
            raise ConfigError("lab.folder-taken", path=str(place))


def _is_empty(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink() and not any(place.iterdir())


@contextmanager
def hold_folder_lock(folder: Path, *, dry_run: bool) -> Iterator[None]:
    """Locks the folder against other processes. A dry run changes nothing and needs no lock."""
    if dry_run:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def kill_clusters(folder: Path, names: Sequence[str], *, tell: Tell, dry_run: bool = False) -> int:
    """Kills the brokers of these clusters, as a power cut does. Returns how many clusters were alive."""
    folder = folder.absolute()
    with hold_folder_lock(folder, dry_run=dry_run):
        chosen = [cluster for cluster in _chosen(folder, names) if any(broker.alive for broker in cluster.brokers)]
        for cluster in chosen:
            tell(f"stopping {cluster.name}: its data stays, and `twinshore lab start {cluster.name}` brings it back")
            if not dry_run:
                kill_brokers(Path(cluster.folder))
    return len(chosen)


def restart_clusters(folder: Path, names: Sequence[str], *, tell: Tell, dry_run: bool = False) -> int:
    """Starts these clusters' dead brokers with their data and addresses. Returns how many clusters lacked brokers."""
    folder = folder.absolute()
    with hold_folder_lock(folder, dry_run=dry_run):
        chosen = [cluster for cluster in _chosen(folder, names) if cluster.state != "up"]
        if cut := [cluster for cluster in chosen if not cluster.bootstrap]:
            raise ConfigError("lab.incomplete-start", cluster=cut[0].name, state=cut[0].state)
        for cluster in chosen:
            tell(f"starting {cluster.name} again: Kafka {cluster.version}, with the data that it had")
            if not dry_run:
                _start_again(cluster)
    return len(chosen)


def _chosen(folder: Path, names: Sequence[str]) -> list[BackgroundCluster]:
    there = {cluster.name: cluster for cluster in list_background_clusters(folder)}
    for name in names:
        if name not in there:
            raise ConfigError("lab.unknown-cluster", cluster=name, folder=str(folder), known=", ".join(there) or "none")
    return [there[name] for name in names]


def _start_again(one: BackgroundCluster) -> None:
    classpath, cluster = fetch_kafka_classpath(one.version), Cluster(one.name, one.bootstrap)
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
    lines = (folder / "server.properties").read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
