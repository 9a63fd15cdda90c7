"""The first of three habits: the client commits by a timer, whatever became of the record.

A record is lost where the application dies after the commit and before its work is done; one is done twice where it
dies after its work and before the commit. Right where neither matters, such as counters that are only looked at.

    python auto_commit.py clusters.json orders billing
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from twinshore.client import FailoverConsumer


def main(clusters: str, topic: str, group: str) -> None:
    config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": True}
    with FailoverConsumer(config, clusters=json.loads(Path(clusters).read_text())) as reader:
        reader.subscribe([topic])
        while True:
            message = reader.poll(1.0)
            if message is not None and not message.error():
                print(f"{message.partition()} {message.offset()}", flush=True)  # the work


if __name__ == "__main__":
    main(*sys.argv[1:])
