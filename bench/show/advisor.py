"""`python -m bench.show.advisor`: what the advisor promises, on real clusters. The simulator's claims wait for it.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from bench.kit.claims import Claim, Finding, NotPlayed
from bench.kit.showing import run_show
from twinshore.fleet import Cluster
from twinshore.lab import LabCluster
from twinshore.lab.clients import admin_of
from twinshore.lab.stages.figures import StageError

HEAD = """\
# The advisor, shown

Written by `make show-advisor`, which asks real clusters and fails while a claim falls short or cannot be tried yet; no
figure is typed by hand.
"""
KEYS = ("made-and-mended",)
TOPICS, TOPICS_LONG, WITHIN_S = 1_000, 5_000, 20.0
MADE_AT_ONCE, MADE_WITHIN_S = 100, 300.0
# Promised with the simulator and with what tries advice under faults: named here until they can be tried.
NOT_YET = {
    "stories": "each story is asserted message by message, and the same outcome is had on real brokers beside it",
    "exhaustive": "exhaustive runs of 3 replicas, 4 messages, 2 faults: CP none lost, AP shortest loss, HW-only loss,"
    " epoch none",
    "planted": "faults planted by somebody who has not seen the rules, three of a kind and just under each threshold",
    "chromium": "pages opened in a real Chromium, stepped by keyboard",
    "advice-holds": "settings generated for stated needs survive staged faults, and the next weaker ones do not",
}


def claims(_seed: int, _only: Collection[str] = ()) -> list[Claim]:
    """Those that are measured, and those that cannot be tried yet."""
    says = f"{TOPICS_LONG:,} topics audited in under {WITHIN_S:g} s"
    return [Claim("many-topics", says, _many), *(Claim(name, words, _not_yet(name)) for name, words in NOT_YET.items())]


def _not_yet(name: str) -> Callable[[bool], Finding]:
    def run(_long: bool) -> Finding:
        raise NotPlayed(name)

    return run


def _many(long: bool) -> Finding:
    """The command as it is shipped, its start included."""
    count = TOPICS_LONG if long else TOPICS
    with LabCluster("many", heap_mb=1024) as cluster, tempfile.TemporaryDirectory() as folder:
        _make(cluster.cluster, count)
        file = Path(folder) / "twinshore.toml"
        file.write_text(f"[clusters.many]\nbootstrap = {json.dumps(list(cluster.bootstrap))}\n")
        begun_s = time.monotonic()
        words = [sys.executable, "-m", "twinshore.cli", "advise", "--settings", str(file), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        took_s = time.monotonic() - begun_s
    found = json.loads(done.stdout)
    audited, unseen = len(found["profiles"]), len(found["unseen"])
    figure = f"{audited:,} topics in {took_s:.1f} s, {len(found['findings']):,} findings, {unseen} things not seen"
    return Finding(
        figure,
        audited == count and not unseen and took_s < WITHIN_S,
        (("audited_topics", audited), ("audited_s", round(took_s, 1))),
    )


def _make(cluster: Cluster, count: int) -> None:
    admin = admin_of(cluster)
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
