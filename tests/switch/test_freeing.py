"""What a switch has left that no store knows is ended on the clusters; what one knows is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import settings_text
from tests.switch.test_decision import NOW_MS, record
from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.settings import Settings, load_settings
from twinshore.homes.home_lines import HomeLine, HomeState
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl, Operation, Pattern, Permission, Resource
from twinshore.lab import LabCluster
from twinshore.service.clock import wall_ms
from twinshore.store import Store, open_store
from twinshore.switch.operations.freeing import Free, FreeStep, _denied, act, plan

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
            notes = HomeNotes(cluster)
            notes.make()
            notes.read()
            notes.claim(["free-orders"], LOST, "anna", wall_ms())
        line = HomeLine("free-orders", "east", one.cluster_id(), 1, 3, HomeState.HELD, switch=LOST, since_ms=wall_ms())
        held = HomeNotes(one)
        held.read()
        held.say([line], wall_ms())

        planned = plan(Free(LOST[:4]), settings, store)
        said = [step.sentence(done=False) for step in planned.steps]
        assert said == [
            "east: free-orders would be in switch abababab no more; writers to free-orders go on",
            "west: free-orders would be in switch abababab no more",
        ]
        assert HomeNotes(one).read()["free-orders"].state is HomeState.HELD, "a plan changes nothing"
        for _ in range(2):
            assert len(list(act(planned, settings, by="bob"))) == 2
        for cluster in (one, other):
            notes = HomeNotes(cluster)
            lines = notes.read()
            assert notes.log.holder("free-orders") is None
            assert "free-orders" not in lines or lines["free-orders"].state is HomeState.SETTLED
        with pytest.raises(ConfigError, match="no cluster has anything"):
            plan(Free(LOST[:4]), settings, store)

        known = record()
        notes.claim(["free-orders"], known.id, "anna", wall_ms())
        store.switches.save(known.row(NOW_MS))
        with pytest.raises(RefusedError, match="is known"):
            plan(Free(known.id[:4]), settings, store)
        notes.release(["free-orders"], known.id, wall_ms())
        notes.claim(["free-orders"], LOST, "anna", wall_ms())
        with pytest.raises(ConfigError, match="no cluster has anything of switch ffff") as slip:
            plan(Free("ffff"), settings, store)
        assert "abababab" in slip.value.hint
        notes.release(["free-orders"], LOST, wall_ms())


def test_the_denial_of_a_switch_that_lives_is_none_of_the_lost_one() -> None:
    """Whoever took it away by hand would let writers in while that switch holds them."""
    denial = Acl(Resource.TOPIC, "orders", Pattern.LITERAL, "User:*", "*", Operation.WRITE, Permission.DENY)
    lost = FreeStep("west", LOST, ("old",), ())
    assert list(_denied([lost], {"east": [denial], "west": []})) == []
    told = list(_denied([lost], {"east": [denial, replace(denial, name="old")]}))
    assert len(told) == 1 and told[0].startswith("east denies Write on old, perhaps")
