"""Which topics a switch would have carried first: those that are named by their whole names, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinshore.fleet import ConfigError, KafkaError
from twinshore.fleet.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.store import Flip, Store, TwinRow, open_store
from twinshore.switch.operations.carrying import plan
from twinshore.switch.operations.meaning import asked_of
from twinshore.switch.operations.plans import plan_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """No broker runs: whoever asks one is told so."""
    path = tmp_path / "twinshore.toml"
    clusters = "".join(
        f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("east", "west", "north")
    )
    links = '[links."east->west"]\ntopics = ["orders"]\n[links."east->north"]\nnaming = "prefix"\n'
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}{links}')
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        opened.twins.save([TwinRow("east->west", "orders", 0, "a" * 32, "b" * 32, 0, 0, 1)])
        yield opened


@pytest.mark.parametrize("topics", [["orders"], ["ord.*"], ["bill.*"], ["bills|pay"]])
def test_what_is_carried_and_what_is_no_name_is_left_to_the_plan_of_the_switch(
    settings: Settings, store: Store, topics: list[str]
) -> None:
    assert plan(asked_of(topics, "west"), settings, store) is None


def test_a_drill_and_a_switch_by_force_have_nothing_carried(settings: Settings, store: Store) -> None:
    for asked in (asked_of(["bills"], "west", force=True), asked_of(["bills"], "west", drill=True)):
        assert plan(asked, settings, store) is None
    assert plan(asked_of(["bills"], "north"), settings, store) is None, "twins there have other names"


@pytest.mark.parametrize("name", ["bills", "pay.ments", r"pay\.ments"])
def test_whether_the_source_has_a_topic_of_this_name_is_asked(settings: Settings, store: Store, name: str) -> None:
    with pytest.raises(KafkaError, match="east"):
        plan(asked_of([name], "west"), settings, store)


def test_what_the_link_leaves_out_on_purpose_stays_left_out(settings: Settings, store: Store) -> None:
    assert plan(asked_of(["__secrets"], "west"), settings, store) is None


def test_a_topic_that_is_at_home_there_is_not_carried_back_to_it(settings: Settings, store: Store) -> None:
    moved = ("bills", "west", 2, "east->west", "west->east", "b" * 32, "a" * 32, (9,), 1, "bob")
    store.switching.flip([Flip("east<>west", *moved)])
    assert plan(asked_of(["bills"], "west"), settings, store) is None


def test_a_slip_of_the_pen_beside_what_is_carried_is_told(settings: Settings, store: Store) -> None:
    with pytest.raises(ConfigError, match=r"no link to west carries pay\.\*"):
        plan_of(asked_of(["orders", "pay.*"], "west"), settings, store)
