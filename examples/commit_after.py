"""The second of three habits: the application commits by hand, once the work is done.

No record is left out. One is done twice where the application dies between its work and the commit, or where the home
of its topic dies before the commit has crossed: the work must bear that.

    python commit_after.py clusters.json orders billing
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from twinshore.client import FailoverConsumer


def main(clusters: str, topic: str, group: str) -> None:
    config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with FailoverConsumer(config, clusters=json.loads(Path(clusters).read_text())) as reader:
        reader.subscribe([topic])
        while True:
            messages = [one for one in reader.consume(500, 1.0) if not one.error()]
            for message in messages:
                print(f"{message.partition()} {message.offset()}", flush=True)  # the work
            if messages:
                reader.commit(asynchronous=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
