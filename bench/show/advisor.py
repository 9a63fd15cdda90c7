"""`python -m bench.show.advisor`: what the advisor and the simulator promise, on real clusters.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from bench.kit.claims import Claim, Finding
from bench.kit.showing import run_show
from testkit.clients import commit_group_offsets
from testkit.figures import StageError
from twinshore.config.model import Cluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster

HEAD = """\
# The advisor, shown

Written by `make show-advisor`, which asks real clusters and fails while a claim falls short or is not played; no
figure is typed by hand.
"""
# What tests are marked with, in the order of the page.
KEYS = (
    "made-and-mended",
    "planted",
    "stories",
    "beside-brokers",
    "exhaustive",
    "chromium",
    "advice-holds",
)
TOPICS, TOPICS_LONG, WITHIN_S = 1_000, 5_000, 20.0
# A group for so many topics, which has places in so many of them.
TOPICS_FOR_A_GROUP, PLACES = 20, 50
MADE_AT_ONCE, MADE_WITHIN_S = 100, 300.0


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """What is measured; the rest tests show."""
    return [Claim("many-topics", f"{TOPICS_LONG:,} topics audited in under {WITHIN_S:g} s", _many)]


def _many(long: bool) -> Finding:
    """The command as it is shipped, its start included."""
    count = TOPICS_LONG if long else TOPICS
    with LabCluster("many", heap_mb=1024) as cluster, tempfile.TemporaryDirectory() as folder:
        _make(cluster.cluster, count)
        groups = _groups(cluster.cluster, count)
        file = Path(folder) / "twinshore.toml"
        file.write_text(f"[clusters.many]\nbootstrap = {json.dumps(list(cluster.bootstrap))}\n")
        begun_s = time.monotonic()
        words = [sys.executable, "-m", "twinshore.cli", "advise", "--settings", str(file), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        took_s = time.monotonic() - begun_s
    found = json.loads(done.stdout)
    audited, unseen = len(found["profiles"]), len(found["unseen"])
    figure = (
        f"{audited:,} topics and {groups} groups of {PLACES} places in {took_s:.1f} s, {len(found['findings']):,}"
        f" findings, {unseen} things not seen"
    )
    told = len({group for group, *_ in found["places"]})
    return Finding(
        figure,
        (audited, told) == (count, groups) and not unseen and took_s < WITHIN_S,
        (("audited_topics", audited), ("audited_s", round(took_s, 1))),
    )


def _groups(cluster: Cluster, topics: int) -> int:
    """How many there are now."""
    count = topics // TOPICS_FOR_A_GROUP
    for number in range(count):
        first = number * TOPICS_FOR_A_GROUP
        places = [TopicPartition(f"topic-{(first + step) % topics}", 0, 0) for step in range(PLACES)]
        commit_group_offsets(cluster, f"group-{number}", *places)
    return count


def _make(cluster: Cluster, count: int) -> None:
    admin = create_admin_client(cluster)
    for start in range(0, count, MADE_AT_ONCE):
        some = [NewTopic(f"topic-{number}", 1, 1) for number in range(start, min(count, start + MADE_AT_ONCE))]
        for done in admin.create_topics(some, operation_timeout=60).values():
            done.result(timeout=120)
    # The controller has them now, the broker by and by.
    until_s = time.monotonic() + MADE_WITHIN_S
    while (known := len(admin.list_topics(timeout=60).topics)) < count:
        if time.monotonic() > until_s:
            raise StageError(f"{known} of {count} topics are there after {MADE_WITHIN_S:g} s")
        time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("advisor", HEAD, claims, arguments, keys=KEYS)


if __name__ == "__main__":
    sys.exit(main())
