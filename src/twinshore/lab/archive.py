"""Prepared once per Kafka version, for quick broker starts: formatted storage, and the JVM's class archive.

Kafka's StorageTool runs once per version; then only meta.properties is rewritten for each node. So a lab cluster starts
with the feature levels of a real one.

The class archive halves the time and CPU of a broker's start. A broker that starts and stops makes it, once per Kafka
and Java. A JVM that cannot use the archive starts without.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from twinshore.lab.broker import BrokerPorts, LabBroker, broker_settings
from twinshore.lab.cache import cache_folder, hold_cache_lock, make_once, print_notice
from twinshore.lab.errors import LabError
from twinshore.lab.jars import ONE_COMPILER_FLAG, fetch_kafka_classpath, find_java
from twinshore.lab.ports import free_port

_IDENTITY = re.compile(r"^(cluster\.id|node\.id|directory\.id)=.*$", re.MULTILINE)


def new_cluster_id() -> str:
    """A random id in Kafka's form: 22 characters of base64, not starting with a dash."""
    while True:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not identity.startswith("-"):
            return identity


def format_storage(version: str, data: Path, *, cluster_id: str, node_id: int) -> None:
    """Makes `data` the empty, formatted log folder of a node."""
    shutil.copytree(_template(version), data)
    meta = data / "meta.properties"
    identity = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_cluster_id()}
    text = meta.read_text(encoding="utf-8")
    meta.write_text(_IDENTITY.sub(lambda found: f"{found[1]}={identity[found[1]]}", text), encoding="utf-8")


def _template(version: str) -> Path:
    folder = cache_folder() / "formatted" / version
    return make_once(folder, "format", lambda data: _run_storage_tool(version, fetch_kafka_classpath(version), data))


def _run_storage_tool(version: str, classpath: str, data: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".format-", dir=data.parent) as scratch:
        ports = BrokerPorts(node_id=1, controller=9093, internal=9094, client=9092)
        settings = broker_settings(ports, (ports,), data)
        properties = Path(scratch, "server.properties")
        properties.write_text("\n".join(f"{name}={value}" for name, value in settings.items()), encoding="utf-8")
        tool = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(properties)]
        command = [find_java(), ONE_COMPILER_FLAG, "-Xmx128m", "-cp", classpath, *tool]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if said.returncode or not (data / "meta.properties").exists():
            raise LabError(
                "lab.cannot-set-up", what=f"the storage of Kafka {version}", cause=said.stderr[-2000:] or said.stdout
            )


_HEAP_MB = 256


def archive_flags(version: str) -> tuple[str, ...]:
    """JVM flags to start a broker of this version from its class archive."""
    archive = cache_folder() / "classes" / f"kafka-{version}-{_identity(fetch_kafka_classpath(version))}.jsa"
    if not archive.exists():
        with hold_cache_lock("classes"):
            if not archive.exists():
                print_notice(f"preparing Kafka {version} for quick starts (once)")
                archive.parent.mkdir(parents=True, exist_ok=True)
                _make(version, archive)
    # An empty file says that the archive could not be made, so that no later call tries again.
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


@functools.cache
def _identity(classpath: str) -> str:
    said = subprocess.run([find_java(), "-version"], capture_output=True, timeout=60, check=False)
    return hashlib.sha256(said.stderr + said.stdout + find_java().encode() + classpath.encode()).hexdigest()[:12]


def _make(version: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as scratch:
        folder = Path(scratch)
        made = folder / "made.jsa"
        data = folder / "data"
        format_storage(version, data, cluster_id=new_cluster_id(), node_id=1)
        ports = BrokerPorts(node_id=1, controller=free_port(), internal=free_port(), client=free_port())
        settings = broker_settings(ports, (ports,), data)
        broker = LabBroker(
            node_id=1,
            port=ports.client,
            folder=folder,
            classpath=fetch_kafka_classpath(version),
            settings=settings,
            heap_mb=_HEAP_MB,
            jvm_flags=(f"-XX:ArchiveClassesAtExit={made}",),
            registered=lambda _: None,
        )
        try:
            broker.launch()
            broker.wait_ready()
            broker.stop()
        except LabError:
            pass
        finally:
            if broker.alive:
                broker.kill()
        if not made.exists():
            made.touch()
        made.rename(archive)
