"""A topic's home, version and claim are the topic's, not a pair's: three clusters, and two links from one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import has_code
from tests.switch.flips import flip_of
from tests.switch.test_decision import record
from twinshore.config.model import Link
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.replication.core.ownership import find_home_row
from twinshore.state.core.values import HomeRow, MirrorRequest, TopicInSwitch, TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.announce import claim_topics, describe_other_claims, read_homes, refuse_claimed_topics
from twinshore.switch.operations.plan import SwitchPlanRequest, plan, topic_move_of

pytestmark = pytest.mark.usefixtures("short_patience")

IDS = {"east": "a" * 32, "west": "b" * 32, "north": "c" * 32}
NORTH = Link("east", "north")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in IDS)
    links = "".join(f'[links."{name}"]\ntopics = ["orders"]\n' for name in ("east->west", "west->east", "east->north"))
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}{links}')
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Of two links from east; a switch has moved the topic to west."""
    with open_store(settings.store.url) as opened:
        twins = [TwinRow(f"east->{to}", "orders", 0, IDS["east"], IDS[to], 0, 0, 1) for to in ("west", "north")]
        opened.twins.save(twins)
        opened.homes.settle([HomeRow("east<>north", "orders", "east", 1, 1, "link east->north")])
        opened.topics_in_switch.change_homes([flip_of("orders", "east", "west", 2, (1200,), ids=IDS)])
        yield opened


@pytest.mark.claim(
    "switch", "home-of-the-topic", "a second switch east->north of what is at home on west is refused, or asks for west"
)
def test_a_second_switch_of_what_is_at_home_elsewhere_is_refused(settings: Settings, store: Store) -> None:
    found = plan(SwitchPlanRequest(["orders"], "north"), settings, store, by="bob")
    assert found.state is None
    assert has_code(found.refusal, "switch.home-elsewhere", topic="orders", home="west", source="east")
    assert {topic: row.home for topic, row in read_homes(store, NORTH, ["orders"]).items()} == {"orders": "west"}
    assert topic_move_of("orders", store.twins.of("east->north"), NORTH, store).term == 2, (
        "the next term is behind both"
    )


def test_a_topic_that_one_switch_has_is_no_other_ones_whichever_the_clusters(store: Store) -> None:
    row = TopicInSwitch("east<>west", "orders", "9" * 32, "west->east", MirrorRequest.ANNOUNCED, 1)
    other = TopicInSwitch("south<>far", "orders", "8" * 32, "south->far", MirrorRequest.ANNOUNCED, 1)
    store.topics_in_switch.begin([row, other])
    assert "another switch already (99999999)" in describe_other_claims(claim_topics(store, record()))
    refused = refuse_claimed_topics(store, "east<>north", ["orders"])
    assert refused is not None and "99999999" in refused.message
    assert refuse_claimed_topics(store, "north<>centre", ["orders"]) is None, (
        "a topic of that name between other clusters"
    )


def test_the_latest_term_of_pairs_that_hang_together_stands() -> None:
    def row(pair: str, home: str, term: int) -> HomeRow:
        return HomeRow(pair, "orders", home, term, 1, "anna")

    rows = [row("east<>north", "east", 1), row("south<>west", "south", 3), row("east<>west", "west", 2)]
    assert find_home_row("east<>north", rows) == rows[1]
    assert find_home_row("east<>north", [*rows, row("far<>moon", "moon", 9)]) == rows[1]
    assert find_home_row("far<>moon", rows) is None
    assert find_home_row("east<>north", [row("east<>west", "east", 1), rows[0]]) == rows[0]
