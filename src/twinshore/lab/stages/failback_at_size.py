"""A fail-back after a forced switch: the old home took records that nobody saw cross, and is back."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicPartition

from twinshore.fleet import Cluster
from twinshore.lab import LabCluster
from twinshore.lab.clients import commit, committed
from twinshore.lab.produce import write
from twinshore.lab.stages.mirror_process import MirrorProcess, run_verb, settings_of
from twinshore.lab.stages.switch_under_load import READY_S, TOPIC, records_of, until
from twinshore.lab.watermarks import close_kept, ends

PARTITIONS, GROUP = 4, "readers"
BEFORE, SINCE = 2_000, 1_000
VERB_S = 420.0


@dataclass(frozen=True, slots=True)
class Returned:
    """`missing`: diverged and in no file; `more`: in a file and not diverged; `listed`: by `switch rescue list`.
    `unequal`: on one of both homes alone afterwards, or elsewhere. `misplaced`: partitions, of both homes, where
    the group does not stand where it should."""

    diverged: int
    listed: int
    missing: int
    more: int
    unequal: int
    misplaced: int
    said: str

    @property
    def wrong(self) -> int:
        return self.missing + self.more + self.unequal + self.misplaced + abs(self.diverged - self.listed)


def returned(diverged: int, *, say: Callable[[str], None], command: str) -> Returned:
    """East takes so many records that do not cross. `command`: the module that is the `twinshore` command."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-failback-")))
        east = stack.enter_context(LabCluster("east", heap_mb=512, via_proxy=True))
        west = stack.enter_context(LabCluster("west", heap_mb=512))
        stack.callback(close_kept)
        east.create_topic(TOPIC, partitions=PARTITIONS)
        _write(east.cluster, "before", BEFORE)
        store = folder / "store.db"
        text = settings_of(east.wan_cluster, west.cluster, store=store, topics=TOPIC, mirror={"disk_warn_percent": 0})
        mirror = MirrorProcess(folder, text, command=command)
        mirror.start()
        stack.callback(mirror.end)
        before = [end // 2 for end in _ends(east.cluster)]
        _stand(east.cluster, before)
        until(lambda: _places(west.cluster) == before, READY_S, "records and places have crossed")
        points = _ends(east.cluster)
        until(lambda: _ends(west.cluster) == points, READY_S, "the twin is level")
        east.proxy(0).cut()
        _write(east.cluster, "late", diverged)
        late = {(partition, offset, value) for partition, offset, _, value in records_of(east.cluster, TOPIC)}
        late = {one for one in late if one[1] >= points[one[0]]}
        _stand(east.cluster, _ends(east.cluster))
        say("the old home is out of sight: switching by force")
        _verb(command, mirror.settings, "run", TOPIC, "--to", "west", "--force", "--yes")
        _write(west.cluster, "since", SINCE)
        east.proxy(0).heal()
        say("the old home is back")
        said = _verb(command, mirror.settings, "failback", TOPIC, "--old", "east", "--yes")
        until(lambda: _ends(east.cluster) == _ends(west.cluster), READY_S, "east is level")
        homes = [set(records_of(lab.cluster, TOPIC)) for lab in (east, west)]
        saved = _saved(folder / "rescued")
        told = json.loads(_verb(command, mirror.settings, "rescue", "list", "--json"))
        # It has read what had crossed, and of what the new home wrote since nothing. On either side it may read on
        # where it stood as the old home fell silent, and no further on than where the homes part.
        misplaced = sum(
            not low <= now <= high
            for lab in (east, west)
            for low, now, high in zip(before, _places(lab.cluster), points, strict=True)
        )
        return Returned(
            diverged=len(late),
            listed=sum(one["records"] for one in told),
            missing=len(late - saved),
            more=len(saved - late),
            unequal=len(homes[0] ^ homes[1]),
            misplaced=misplaced,
            said=next(line for line in said.splitlines() if line.startswith("done: ")),
        )


def _write(cluster: Cluster, name: str, records: int) -> None:
    numbered = ((number, b"%s %d" % (name.encode(), number)) for number in range(records))
    write(cluster, TOPIC, ((b"key %d" % number, value, number % PARTITIONS) for number, value in numbered))


def _stand(cluster: Cluster, places: list[int]) -> None:
    commit(cluster, GROUP, *(TopicPartition(TOPIC, partition, place) for partition, place in enumerate(places)))


def _places(cluster: Cluster) -> list[int]:
    return committed(cluster, GROUP, TOPIC, list(range(PARTITIONS)))


def _ends(cluster: Cluster) -> list[int]:
    return ends(cluster, TOPIC, PARTITIONS)


def _saved(folder: Path) -> set[tuple[int, int, bytes]]:
    """Partition, offset and value of each record in a file."""
    found = set()
    for path in folder.glob("*.jsonl"):
        head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        found |= {(head["partition"], one["offset"], base64.b64decode(one["value"])) for one in lines[:-1]}
    return found


def _verb(command: str, settings: Path, *words: str) -> str:
    return run_verb(["switch", *words], settings, command=command, within_s=VERB_S)
