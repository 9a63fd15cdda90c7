"""Clients of librdkafka on a machine that knows hosts by a file of its own: `python -m tests.proxy.by_names JOB`, where
JOB is JSON. It prints what they did, as JSON.

Started by `known_by`, it sees that file as /etc/hosts, in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

import twinshore

_MOUNTED = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def can_know_hosts(folder: Path) -> bool:
    """Whether this machine lets a process have hosts of its own."""
    (folder / "hosts").touch()
    asked = _inside(folder / "hosts", ["true"])
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def known_by(hosts: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """What became of the job, where hosts are those of the file."""
    root = Path(twinshore.__path__[0]).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = _inside(hosts, [sys.executable, "-m", "tests.proxy.by_names", json.dumps(job)])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _inside(hosts: Path, command: list[str]) -> list[str]:
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNTED, "sh", str(hosts), *command]


def main() -> None:
    job = json.loads(sys.argv[1])
    producer = Producer({**job["settings"], "enable.idempotence": True, "message.timeout.ms": 30_000})
    failed: list[str] = []

    def heard(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.name())

    for topic in job["topics"]:
        for number in range(job["count"]):
            producer.produce(topic, f"{topic} {number}", on_delivery=heard)
    left = producer.flush(60)
    brokers = producer.list_topics(timeout=30).brokers.values()
    own = {"group.id": job["group"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**job["settings"], **own})
    consumer.subscribe(job["topics"])
    read, until_s = 0, time.monotonic() + 60
    while read < job["count"] * len(job["topics"]) and time.monotonic() < until_s:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            read += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    told = sorted(f"{one.host}:{one.port}" for one in brokers)
    print(json.dumps({"failed": failed, "left": left, "read": read, "brokers": told}))


if __name__ == "__main__":
    main()
