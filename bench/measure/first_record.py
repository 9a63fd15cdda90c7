"""From `mirror run` to the first record on the target: where compiled loops are kept, and on a machine that has none.

`python -m bench.measure.first_record` starts mirrors by turns. A fresh one has an empty folder for what numba keeps,
as after `pip install`; a warm one finds there what the one before it built.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from testkit.clients import forget_links
from testkit.figures import StageError, median
from testkit.watermarks import TopicEndReader
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess, settings_of

STARTS_S_MAX = 180.0
POLL_S = 0.02
RECORDS = 1_000


def first_record_s(source: LabCluster, target: LabCluster, topic: str, folder: Path, kept: Path) -> float:
    """How long a mirror takes until the target has a record of this topic; `kept` is where loops are kept."""
    forget_links(target.cluster)  # each has a store of its own
    source.create_topic(topic)
    producer = Producer(client_settings(source.cluster))
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    if producer.flush(60):
        raise StageError(f"{topic} cannot be written")
    os.environ["NUMBA_CACHE_DIR"] = str(kept)
    text = settings_of(source.cluster, target.cluster, store=folder / "store.db", topics=topic)
    mirror = MirrorProcess(folder, text)
    end = TopicEndReader(target.cluster, topic, 1)
    try:
        begun_s = time.monotonic()
        mirror.start()
        while end.records() < 1:
            mirror.check()
            if time.monotonic() - begun_s > STARTS_S_MAX:
                raise StageError(f"nothing crossed within {STARTS_S_MAX:.0f} s: {mirror.said[-2000:]}")
            time.sleep(POLL_S)
        return time.monotonic() - begun_s
    finally:
        mirror.end()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.measure.first_record")
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    fresh, warm = list[float](), list[float]()
    with (
        tempfile.TemporaryDirectory(prefix="twinshore-first-") as scratch,
        LabCluster("east") as east,
        LabCluster("west") as west,
    ):
        for turn in range(asked.turns):
            kept = Path(scratch, f"kept-{turn}")
            for name, found in (("fresh", fresh), ("warm", warm)):
                folder = Path(scratch, f"{name}-{turn}")
                found.append(first_record_s(east, west, f"first-{name}-{turn}", folder, kept))
                print(f"{name}: {found[-1]:.1f} s", flush=True)
    line = {"fresh_s": round(median(fresh), 1), "warm_s": round(median(warm), 1)}
    print(json.dumps({**line, "more_s": round(median(fresh) - median(warm), 1), "turns": asked.turns}))


if __name__ == "__main__":
    main()
