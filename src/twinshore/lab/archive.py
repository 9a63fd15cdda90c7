"""The broker's classes as the JVM keeps them: halves the time and the CPU that a broker's start takes.

Made once for each Kafka and Java by a broker that starts and stops again. A JVM that cannot use one starts without.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path

from twinshore.lab.broker import LabBroker
from twinshore.lab.broker_settings import BrokerPorts, broker_settings
from twinshore.lab.errors import LabError
from twinshore.lab.format import format_storage, new_cluster_id
from twinshore.lab.home import cache_folder, locked, tell
from twinshore.lab.jars import kafka_classpath
from twinshore.lab.jvm import java
from twinshore.lab.ports import free_port

_HEAP_MB = 256


def archive_flags(version: str) -> tuple[str, ...]:
    """What a JVM needs to be told to start a broker of this version from its archive."""
    archive = cache_folder() / "classes" / f"kafka-{version}-{_identity(kafka_classpath(version))}.jsa"
    if not archive.exists():
        with locked("classes"):
            if not archive.exists():
                tell(f"preparing Kafka {version} for quick starts (once)")
                archive.parent.mkdir(parents=True, exist_ok=True)
                _make(version, archive)
    # An empty one says that it could not be made, so that nobody tries again.
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


@functools.cache
def _identity(classpath: str) -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, timeout=60, check=False)
    return hashlib.sha256(said.stderr + said.stdout + java().encode() + classpath.encode()).hexdigest()[:12]


def _make(version: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as scratch:
        folder = Path(scratch)
        made = folder / "made.jsa"
        data = folder / "data"
        format_storage(version, data, cluster_id=new_cluster_id(), node_id=1)
        ports = BrokerPorts(node_id=1, controller=free_port(), internal=free_port(), client=free_port())
        settings = broker_settings(ports, (ports,), data=data, protocol="PLAINTEXT", security={}, chosen={})
        broker = LabBroker(
            node_id=1,
            port=ports.client,
            folder=folder,
            classpath=kafka_classpath(version),
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
