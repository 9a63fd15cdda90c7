"""What a switch has left that no store knows is ended on the clusters; what one knows is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from tests.scenarios.mirror_rig import settings_text
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.sections.clusters import SECTION as CLUSTERS
from twinshore.config.settings import Settings, load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.replication.core.ownership import pair_name
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.acl_rules import DEFERRED_CLEANUP_KIND
from twinshore.switch.core.steps import SwitchStatus, SwitchStep
from twinshore.switch.operations.freeing import PARTLY_FILLED, FreeStep, _denied, free_claims, plan

LOST = "ab" * 16


@pytest.fixture
def settings(east: LabCluster, west: LabCluster, tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    path.write_text(settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": "free-.*"}))
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


def test_what_an_unknown_switch_left_is_ended(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster
) -> None:
    """Its process and its store are no more: both clusters say that it has the topic, and east that writers wait."""
    with closing(KafkaCluster(east.cluster)) as one, closing(KafkaCluster(west.cluster)) as other:
        for cluster in (one, other):
            notes = HomesTopic(cluster)
            notes.make()
            notes.read()
            notes.claim(["free-orders"], LOST, "anna", wall_ms())
        line = HomeRecord(
            topic="free-orders",
            home="east",
            cluster_id=one.cluster_id(),
            term=1,
            step=3,
            state=HomeState.HELD,
            switch=LOST,
            since_ms=wall_ms(),
        )
        held = HomesTopic(one)
        held.read()
        held.say([line], wall_ms())

        planned = plan(LOST[:4], settings, store)
        assert [(step.cluster, step.topics, step.held) for step in planned.steps] == [
            ("east", ("free-orders",), ("free-orders",)),
            ("west", ("free-orders",), ()),
        ]
        assert HomesTopic(one).read()["free-orders"].state is HomeState.HELD, "a plan changes nothing"
        for _ in range(2):
            assert len(list(free_claims(planned, settings, by="bob"))) == 2
        for cluster in (one, other):
            notes = HomesTopic(cluster)
            lines = notes.read()
            assert notes.log.holder("free-orders") is None
            assert "free-orders" not in lines or lines["free-orders"].state is HomeState.SETTLED
        with raises(ConfigError, "switch.nothing-to-free"):
            plan(LOST[:4], settings, store)

        known = record()
        notes.claim(["free-orders"], known.id, "anna", wall_ms())
        store.switches.save(known.row(NOW_MS))
        with raises(RefusedError, "switch.still-needed"):
            plan(known.id[:4], settings, store)
        notes.release(["free-orders"], known.id, wall_ms())
        notes.claim(["free-orders"], LOST, "anna", wall_ms())
        with raises(ConfigError, "switch.nothing-to-free", of="switch ffff") as slip:
            plan("ffff", settings, store)
        assert "abababab" in slip.value.hint
        notes.release(["free-orders"], LOST, wall_ms())


def test_a_switch_that_ended_is_freed_and_a_cluster_that_is_silent_is_left_out(
    settings: Settings, store: Store, west: LabCluster
) -> None:
    """Its verbs take no switch that has ended; and what is gone for good must not keep what is left."""
    ended = replace(record(), id="cd" * 16, state=SwitchStatus.DONE, step=SwitchStep.RELEASE)
    store.switches.save(ended.row(NOW_MS))
    with closing(KafkaCluster(west.cluster)) as other:
        notes = HomesTopic(other)
        notes.make()
        notes.read()
        notes.claim(["free-ended"], ended.id, "anna", wall_ms())
        notes.claim(["free-lost"], LOST, "anna", wall_ms())

        debt = LinkStateRow(
            pair_name(settings.links[0]), DEFERRED_CLEANUP_KIND, f"{ended.id} west", "{}", "owed", NOW_MS
        )
        store.link_states.remember([debt])
        with raises(RefusedError, "switch.still-needed") as owes:
            plan("cd", settings, store)
        assert mentions(owes.value.hint, "mirror", "west")
        store.link_states.forget([debt])

        gone = replace(settings.cluster("east"), bootstrap=(f"127.0.0.1:{free_port()}",))
        away = replace(settings, values={**settings.values, CLUSTERS.name: {**settings.clusters, "east": gone}})
        planned = plan("cd", away, store)
        assert [step.cluster for step in planned.steps] == ["west"]
        assert planned.shown[0].startswith("switch cdcdcdcd has ended (done): see that no process")
        assert any(line.startswith("east was not asked (") for line in planned.remarks)
        # What went away only now keeps nobody waiting for it, and is told in the end.
        lost = (FreeStep("east", ended.id, ("free-ended",), ()), *planned.steps)
        with pytest.raises(KafkaError):
            list(free_claims(replace(planned, steps=lost), away, by="bob"))
        notes.read()
        assert notes.log.holder("free-ended") is None
        assert notes.log.holder("free-lost") is not None
        notes.release(["free-lost"], LOST, wall_ms())


def test_what_a_claim_may_protect_is_said_before_it_goes(settings: Settings, store: Store, west: LabCluster) -> None:
    """A rebuild stood in refill: its claim keeps a forced switch without the store off what is there."""
    with closing(KafkaCluster(west.cluster)) as other:
        notes = HomesTopic(other)
        notes.make()
        notes.read()
        notes.claim(["free-halves"], LOST, "anna", wall_ms())
        assert plan("", settings, store).remarks == (PARTLY_FILLED,)
        notes.release(["free-halves"], LOST, wall_ms())


def test_the_denial_of_a_switch_that_lives_is_none_of_the_lost_one() -> None:
    """Whoever took it away by hand would let writers in while that switch holds them."""
    denial = Acl(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermission.DENY
    )
    lost = FreeStep("west", LOST, ("old",), ())
    assert list(_denied([lost], {"east": [denial], "west": []})) == []
    told = list(_denied([lost], {"east": [denial, replace(denial, name="old")]}))
    assert [mentions(one, "east", "Write", "old") for one in told] == [True]
