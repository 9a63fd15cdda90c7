"""Parts of both clusters and all between them are killed at random under load, and then the home is gone for good."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.plain_clients import Acked
from tests.scenarios.protection_stage import (
    PLAIN,
    ProtectionStage,
    TransferWriter,
    doubled,
    missing,
    protection_stage,
)
from tests.scenarios.switch_rig import SwitchRig
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_marker_kills import deaths, the_seed

STRICT, SYNC, ASYNC, TRANSFERS = "kills-strict", "kills-sync", "kills-async", "kills-transfers"
LEVELS = {STRICT: "strict", SYNC: "sync", ASYNC: "async", TRANSFERS: "strict"}
PARTITIONS, KILLS = 3, 30
# A round of them; the seed says in which order.
ROUND = ("home broker",) * 8 + ("twin broker",) * 8 + ("worker",) * 6 + ("proxy",) * 5 + ("mirror",) * 3
SAFE = {"transaction.state.log.min.isr": "2"}
# Keys of idempotent producers and of others, numbers those of Java.
ONCE = {STRICT: r"once.*|\d+", SYNC: "once.*", ASYNC: "once.*"}
NOT_ONCE = {STRICT: "plain.*", SYNC: r"plain.*|\d+", ASYNC: "plain.*"}
GOES_ON_S_MAX = 180.0


class ProtectedLoad:
    """Producers of every kind at each level. `acked`: by topic and the kind of producer."""

    def __init__(self, stage: ProtectionStage) -> None:
        self._plain = {
            (topic, name): stage.writer(topic, name, 40.0, **settings)
            for topic in (STRICT, SYNC, ASYNC)
            for name, settings in (("once", {}), ("plain", PLAIN))
        }
        self._java = {
            (STRICT, "java once"): stage.java(STRICT, 40),
            (SYNC, "java plain"): stage.java(SYNC, 40, **{"enable.idempotence": "false"}),
        }
        self.transfers = TransferWriter(stage.bootstrap, TRANSFERS, PARTITIONS)
        stage.stack.callback(self.transfers.stop)

    def acked(self) -> dict[tuple[str, str], list[Acked]]:
        plain = {key: list(writer.acked) for key, writer in self._plain.items()}
        return {**plain, **{key: writer.acked() for key, writer in self._java.items()}}

    def goes_on(self, more: int = 5) -> None:
        """Each producer is acknowledged some more."""
        before, began_s = {key: len(acked) for key, acked in self.acked().items()}, time.monotonic()
        while silent := [key for key, acked in self.acked().items() if len(acked) < before[key] + more]:
            refused = {key: one.failed[-3:] for key, one in self._plain.items()}
            assert time.monotonic() < began_s + GOES_ON_S_MAX, (silent, refused)
            time.sleep(0.2)

    def commits(self) -> None:
        """Transactions go on too; a coordinator may be away for longer than a broker."""
        before = len(self.transfers.committed)
        until(lambda: len(self.transfers.committed) > before, GOES_ON_S_MAX, f"commits: {self.transfers.failed}")

    def stop(self) -> None:
        for plain in self._plain.values():
            plain.stop()
        for java in self._java.values():
            java.stop()

    def failed(self) -> int:
        plain, java = self._plain.values(), self._java.values()
        return sum(len(one.failed) for one in plain) + sum(len(one.failed()) for one in java)


def strike(stage: ProtectionStage, kind: str, chance: random.Random) -> None:
    """Kills one, and has it back, some seconds later at the most."""
    match kind:
        case "home broker" | "twin broker":
            broker = chance.choice((stage.east if kind == "home broker" else stage.west).brokers)
            broker.kill()
            time.sleep(chance.uniform(0.0, 3.0))
            broker.restart()
        case "proxy":
            proxy = chance.choice(stage.proxies)
            proxy.close()
            proxy.start()
        case "mirror":
            stage.made.process.kill()
            stage.made.process.start()
        case "worker":
            until(lambda: bool(stage.made.process.task_processes()), GOES_ON_S_MAX, "a task runs")
            with suppress(IndexError, psutil.NoSuchProcess):
                chance.choice(stage.made.process.task_processes()).kill()


def kinds_of(count: int, chance: random.Random) -> list[str]:
    return [kind for _ in range(0, count, len(ROUND)) for kind in chance.sample(ROUND, len(ROUND))][:count]


@pytest.mark.claim(
    "protection",
    "kills",
    "30 kills of brokers on both sides, mirror, workers and proxies under load through two proxies, then the home is"
    " gone: what was acknowledged of strict topics, and of sync but for what the switch names, is on the twin at its"
    " offset; acknowledged transactions are whole",
)
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_was_acknowledged_outlives_random_kills_and_the_home(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """TWINSHORE_SEED plays one again, TWINSHORE_DEATHS so many kills."""
    seed = the_seed()
    chance = random.Random(seed)
    began_s = time.monotonic()
    east, west = (cluster_factory(name, brokers=3, heap_mb=256, settings=SAFE) for name in ("east", "west"))
    topic = {"copies": 3, "settings": {"min.insync.replicas": "2"}}
    stage_of = partial(protection_stage, tmp_path, east, west, LEVELS, partitions=PARTITIONS, topic=topic)
    with stage_of(proxies=2, spark=True) as stage:
        load = ProtectedLoad(stage)
        load.goes_on(100)
        load.commits()
        print(f"it is set up after {time.monotonic() - began_s:.0f} s")
        done = Counter[str]()
        for kind in kinds_of(deaths(KILLS, KILLS), chance):
            struck_s = time.monotonic()
            strike(stage, kind, chance)
            done[kind] += 1
            load.goes_on()
            print(f"{kind}: all go on after {time.monotonic() - struck_s:.1f} s")
            time.sleep(chance.uniform(0.2, 1.5))
        load.commits()
        said = lose_home(stage, chance)
        load.transfers.stop()
        load.goes_on(50)
        load.stop()
        judge(stage, load, said)
        killed = ", ".join(f"{count} {kind}s" for kind, count in sorted(done.items()))
        print(
            f"told: TWINSHORE_SEED={seed}: {killed}; three brokers a side, {load.failed()} errors told to applications"
        )


def lose_home(stage: ProtectionStage, chance: random.Random) -> str:
    """The mirror is killed, then all of east, which stays away; the topics move by force. Returns what was said."""
    stage.made.process.kill()
    away_s = chance.uniform(0.5, 9.0)
    time.sleep(away_s)
    for broker in stage.east.brokers:
        broker.kill()
    stage.made.process.start()
    rig = SwitchRig(stage.made, STRICT, stage.east, stage.west, PARTITIONS)
    said = rig.switch("run", *LEVELS, "--to", "west", "--force", "--yes")
    assert said.code == 0, said.text
    print(f"told: the mirror was killed {away_s:.1f} s before the home")
    for topic in (STRICT, TRANSFERS):
        assert f"topic {topic} is strict: nothing that its protected writers were told is lost" in said.text, said.text
    return said.text


def judge(stage: ProtectionStage, load: ProtectedLoad, said: str) -> None:
    about_sync = re.findall(rf"topic {SYNC} is sync.*", said)[-1]  # the plan says it too, before
    since = {int(number): int(at) for number, at in re.findall(r"partition (\d+) from offset (\d+)", about_sync)}
    logs = {topic: stage.log(stage.west, topic) for topic in (STRICT, SYNC, ASYNC)}
    lost = {key: missing(logs[key[0]], acked) for key, acked in load.acked().items()}
    counts = {topic: sum(len(acked) for key, acked in load.acked().items() if key[0] == topic) for topic in logs}
    gone = {topic: [one for key, some in lost.items() if key[0] == topic for one in some] for topic in logs}
    assert gone[STRICT] == [], f"{len(gone[STRICT])} of {counts[STRICT]}: {gone[STRICT][:5]}"
    unnamed = [one for one in gone[SYNC] if one.place[1] < since.get(one.place[0], 1 << 62)]
    assert unnamed == [], f"{len(unnamed)} of {counts[SYNC]}: {unnamed[:5]}; {about_sync}"
    print(f"told: strict: 0 of {counts[STRICT]} acknowledged records lost; sync: {len(gone[SYNC])} of {counts[SYNC]},")
    print(f"told: which the switch names (from {since or 'nowhere'} on); async: {len(gone[ASYNC])} of {counts[ASYNC]}")
    transfers = stage.log(stage.west, TRANSFERS, committed=True)
    assert load.transfers.missing(transfers) == [], load.transfers.missing(transfers)[:5]
    torn = load.transfers.torn(transfers)
    print(f"told: {len(load.transfers.committed)} transactions acknowledged, all are whole; torn: {torn or 'none'}")
    twice = [sum(doubled(logs[topic], keys) for topic, keys in of.items()) for of in (ONCE, NOT_ONCE)]
    print("told: records that are there twice: {} of idempotent producers, {} of others".format(*twice))
