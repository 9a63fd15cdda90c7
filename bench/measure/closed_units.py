"""`python -m bench.measure.closed_units`: how fast markers cross to a target that takes none directly."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.measure.markers import PARTITIONS, Stage
from bench.measure.unseen_topics import SOURCE_SETTINGS, write_markers
from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster, rigged
from twinshore.lab.mirror_process import MirrorProcess, settings_of

MARKERS = 100_000
USER = "mirror"
# All that docs/mirror.md asks for on a target, and nothing that would let the user write markers.
RIGHTS = {
    "topic": ("describe", "read", "write", "create", "alter", "delete", "describe_configs", "alter_configs"),
    "broker": ("idempotent_write", "describe_configs"),
    "transactional_id": ("describe", "write"),
}
Say = Callable[[str], None]


class RestrictedStage(Stage):
    """Its mirror has a user of few rights on the target."""

    @contextmanager
    def mirror(self, topic: str) -> Iterator[MirrorProcess]:
        folder, target = self.folder / topic, rigged(self.target).cluster_as(USER)
        process = MirrorProcess(
            folder, settings_of(self.source.cluster, target, store=self.folder / f"{topic}.db", topics=topic)
        )
        process.start()
        try:
            yield process
        finally:
            process.end()


def run_closed_units_bench(*, short: bool = False, say: Say) -> float:
    """Markers per second over PARTITIONS partitions; `short` at a fifth of the size."""
    count = MARKERS // (5 if short else 1)
    with (
        tempfile.TemporaryDirectory(prefix="units-") as folder,
        RigCluster("east", heap_mb=512, settings=SOURCE_SETTINGS) as source,
        RigCluster("west", heap_mb=512, security=LabSecurity.SASL_PLAIN, authorizer=True, users=(USER,)) as target,
    ):
        for kind, operations in RIGHTS.items():
            for operation in operations:
                add_acl(target.cluster, USER, operation, kind, "kafka-cluster" if kind == "broker" else "*")
        stage = RestrictedStage(Path(folder), source, target)
        try:
            source.create_topic("units", partitions=PARTITIONS)
            write_markers(stage.kafka[0], "units", range(PARTITIONS), count // PARTITIONS)
            took_s, crossed = stage.carried("units", PARTITIONS)
        finally:
            stage.close()
    say(f"{crossed} markers by closed units in {took_s:.1f} s")
    return crossed / took_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error, one line of JSON last."""
    parser = argparse.ArgumentParser(prog="bench.measure.closed_units")
    parser.add_argument("--short", action="store_true", help="a fifth of the size")
    asked = parser.parse_args(arguments)
    per_s = run_closed_units_bench(short=asked.short, say=lambda line: print(line, file=sys.stderr))
    print(json.dumps({"bench": "closed_units", "units_per_s": per_s}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
