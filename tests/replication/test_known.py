"""Which links there are: rows of a real store, with settings as their seed, and a process that follows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings, parse_settings
from twinshore.replication.core.link_config import changed_link_row, new_link_row, removed_link_row
from twinshore.replication.links import LinkRegistry, adopt_settings, load_all_links, load_links
from twinshore.replication.operations import link_admin as change
from twinshore.replication.operations.link_admin import list_link_remarks, with_stored_links
from twinshore.state.core.values import ControlRow, LinkIdentity, LinkRow, TwinRow
from twinshore.state.store import Store, open_store

LINK, OTHER = "east->west", "east->north"


def settings_of(folder: Path, *links: str) -> Settings:
    """Clusters that nobody can reach, and these links."""
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["{name}:9092"]\n' for name in ("east", "west", "north"))
    text = f'[store]\nurl = "sqlite:///{folder / "store.db"}"\n{clusters}{"".join(links)}'
    return parse_settings(text, name="settings", env={})


def section(link: str, topics: str) -> str:
    return f'[links."{link}"]\ntopics = ["{topics}"]\n'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def topics_of(settings: Settings) -> dict[str, tuple[str, ...]]:
    return {link.name: link.topics for link in settings.links}


def put(store: Store, *rows: LinkRow) -> None:
    assert store.link_rows.change(rows, seen=store.link_rows.read()[0])


def row_of(store: Store, link: str) -> LinkRow:
    return next(row for row in store.link_rows.read()[1] if row.link == link)


def test_a_store_takes_what_settings_say_once_and_tells_the_audit(tmp_path: Path, store: Store) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    assert load_links(settings, store).links == tuple(settings.links)
    assert store.link_rows.read() == (0, ()), "looking writes nothing"
    assert adopt_settings(settings, store, by="the settings").revision == 1
    assert adopt_settings(settings, store, by="the settings").revision == 1, "a second start finds it there"
    (told,) = store.audit.rows(LINK)
    assert (told.kind, told.before, told.after, told.outcome) == (
        "link",
        "",
        '{"topics":["orders"]}',
        "by the settings",
    )


def test_edited_settings_are_taken_and_an_operators_word_is_not_lost_to_them(tmp_path: Path, store: Store) -> None:
    adopt_settings(settings_of(tmp_path, section(LINK, "orders")), store, by="the settings")
    edited = settings_of(tmp_path, section(LINK, "bills"))
    assert adopt_settings(edited, store, by="the settings").links == tuple(edited.links)
    put(store, changed_link_row(row_of(store, LINK), {"topics": ["letters"]}, 5, "anna"))
    found = adopt_settings(edited, store, by="the settings")
    assert [link.topics for link in found.links] == [("letters",)]
    assert [str(one) for one in found.differences] == [
        'east->west: topics is ["letters"], and ["bills"] in the settings (by anna)'
    ]


def test_links_that_could_loop_are_refused_and_nothing_of_them_is_taken(tmp_path: Path, store: Store) -> None:
    settings = settings_of(tmp_path, *(section(one, "orders") for one in (LINK, "west->north", "north->east")))
    with raises(ConfigError, "replication.links-loop"):
        adopt_settings(settings, store, by="the settings")
    assert store.link_rows.read() == (0, ())


def test_settings_that_clash_with_what_operators_said_are_refused_at_start(tmp_path: Path, store: Store) -> None:
    adopt_settings(settings_of(tmp_path, section(LINK, "orders")), store, by="the settings")
    said = ControlRow(LINK, "topics", '["bills"]', 5, "anna")
    assert store.controls.change(LINK, {"topics": said}, seen=store.controls.version(LINK), told=())
    edited = settings_of(tmp_path, section(LINK, "orders"), section("north->west", "bills"))
    with raises(ConfigError, "replication.links-collide", topics="topics like bills", cluster="west"):
        adopt_settings(edited, store, by="the settings")
    assert [row.link for row in store.link_rows.read()[1]] == [LINK], "nothing of them is taken"
    assert store.controls.change(LINK, {"topics": None}, seen=store.controls.version(LINK), told=())
    assert len(adopt_settings(edited, store, by="the settings").links) == 2


def test_a_link_of_a_cluster_that_settings_do_not_know_is_told_and_hinders_no_other(
    tmp_path: Path, store: Store
) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    put(store, new_link_row("east->south", {"topics": ["orders"]}, 5, "anna"))
    found = adopt_settings(settings, store, by="the settings")
    assert [link.name for link in found.links] == [LINK]
    assert [one.link for one in found.differences] == ["east->south"]
    assert "no cluster 'south'" in found.differences[0].sentence


def test_whoever_has_settings_alone_sees_the_links_of_the_store(tmp_path: Path, log_lines: LogLines) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    assert with_stored_links(settings).links == settings.links
    assert not (tmp_path / "store.db").exists(), "looking makes no store"
    with open_store(settings.store.url) as store:
        adopt_settings(settings, store, by="the settings")
        store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
        put(
            store,
            removed_link_row(row_of(store, LINK), 5, "anna"),
            new_link_row(OTHER, {"topics": ["bills"]}, 5, "anna"),
        )
        told = [str(one) for one in list_link_remarks(settings, store, now_ms=10**13)]
    assert topics_of(with_stored_links(settings)) == {OTHER: ("bills",)}
    assert [mentions(one, LINK, "removed by anna", "west", "1 twin") for one in told] == [True]
    assert log_lines == []
    (tmp_path / "store.db").write_bytes(b"no database" * 100)
    assert with_stored_links(settings).links == settings.links
    assert "the settings have them" in log_lines[0]


def test_a_process_follows_the_rows_and_whoever_carries_a_link_keeps_its_own(tmp_path: Path, store: Store) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    registry = LinkRegistry(settings, store, adopt_settings(settings, store, by="the settings"), ())
    (link,) = registry.wanted().values()
    around = registry.settings_around(link)
    put(store, new_link_row(OTHER, {"topics": ["bills"]}, 5, "anna"))
    registry.turn()
    assert list(registry.wanted()) == [LINK, OTHER]
    assert set(topics_of(around)) == {LINK, OTHER}, "the others as they are now"
    put(store, changed_link_row(row_of(store, LINK), {"topics": ["letters"]}, 6, "anna"))
    registry.turn()
    assert registry.wanted()[LINK].topics == ("letters",)
    assert topics_of(around)[LINK] == ("orders",), "its own as it began"
    put(store, removed_link_row(row_of(store, LINK), 7, "anna"))
    registry.turn()
    assert list(registry.wanted()) == [OTHER] and mentions(registry.why_gone(LINK), "removed by anna")
    assert link in around.links


@pytest.mark.claim("topics", "clashing-links", "a link that clashes is set aside alone, also at start")
def test_a_link_that_clashes_is_set_aside_and_hinders_no_other(
    tmp_path: Path, store: Store, log_lines: LogLines
) -> None:
    """As where it was added on a machine whose settings do not know all clusters."""
    settings = settings_of(tmp_path, section(LINK, "orders"), section(OTHER, "bills"))
    registry = LinkRegistry(settings, store, adopt_settings(settings, store, by="the settings"), ())
    put(store, new_link_row("west->north", {"topics": ["bills"]}, 8, "anna"))
    put(store, changed_link_row(row_of(store, LINK), {"topics": ["letters"]}, 9, "anna"))
    registry.turn()
    why = "is set aside, as it was changed last and cannot be with the others: links east->north and west->north"
    assert {name: link.topics for name, link in registry.wanted().items()} == {LINK: ("letters",), OTHER: ("bills",)}
    assert log_lines[-1].startswith(f"west->north: {why}")
    assert registry.why_gone("west->north").startswith(f"the link {why}")
    begins = adopt_settings(settings, store, by="the settings")
    assert [link.name for link in begins.links] == [LINK, OTHER], "a mirror starts beside it"
    assert "west->north" not in {link.name for link in begins.links}
    assert any(str(one).startswith(f"west->north: {why}") for one in list_link_remarks(settings, store, now_ms=9))
    put(store, changed_link_row(row_of(store, OTHER), {"topics": ["maps"]}, 10, "anna"))
    registry.turn()
    assert list(registry.wanted()) == [LINK, OTHER, "west->north"], "it is carried once nothing is in its way"


def test_settings_that_clash_with_links_of_other_settings_are_refused_at_start(tmp_path: Path, store: Store) -> None:
    """Two mirrors would write the same twins, and each would see its own link alone."""
    adopt_settings(settings_of(tmp_path, section(LINK, "orders")), store, by="the settings")
    clashing = settings_of(tmp_path, section("north->west", "ord.*"))
    with raises(ConfigError, "replication.links-collide", links="east->west and north->west"):
        adopt_settings(clashing, store, by="the settings")
    assert [row.link for row in store.link_rows.read()[1]] == [LINK], "nothing is written"
    assert list(change.act(change.plan(change.RemoveLink(LINK), clashing, store), clashing, store, by="anna"))
    assert [link.name for link in adopt_settings(clashing, store, by="the settings").links] == ["north->west"]


def test_a_process_that_was_told_which_links_carries_no_other(tmp_path: Path, store: Store) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    registry = LinkRegistry(settings, store, adopt_settings(settings, store, by="the settings"), [LINK])
    put(store, new_link_row(OTHER, {"topics": ["bills"]}, 5, "anna"))
    registry.turn()
    assert list(registry.wanted()) == [LINK]


def test_settings_turn_no_link_round_that_has_twins(tmp_path: Path, store: Store) -> None:
    """As `link reverse` does not: the mirror would take twins for originals where no journal of twins can be read."""
    adopt_settings(settings_of(tmp_path, section(LINK, "orders|bills")), store, by="the settings")
    store.links.save_identity(LinkIdentity(LINK, 1, 0, "a", "b"))
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    turned = settings_of(tmp_path, section("west->east", "orders|bills"))
    with raises(ConfigError, "replication.twins-carried-back", link="west->east"):
        adopt_settings(turned, store, by="the settings")
    assert {row.link for row in store.link_rows.read()[1]} == {LINK}, "nothing is written"
    apart = settings_of(tmp_path, section("west->east", "bills"))
    assert topics_of(apart) == {"west->east": ("bills",)}
    assert [link.name for link in adopt_settings(apart, store, by="the settings").links] == ["west->east"]
    with raises(ConfigError, "replication.twins-carried-back", link="west->east"):
        adopt_settings(turned, store, by="the settings")
    both = settings_of(tmp_path, section(LINK, "orders|bills"), section("west->east", "orders|bills"))
    assert len(adopt_settings(both, store, by="the settings").links) == 2, (
        "of a pair homes say which link carries a topic"
    )


def test_who_carries_no_link_knows_those_of_other_settings_as_well(tmp_path: Path, store: Store) -> None:
    """As a proxy, which must know whose twins there are."""
    mirrors = settings_of(tmp_path, section(LINK, "orders"), section(OTHER, "bills"))
    adopt_settings(mirrors, store, by="test")
    ours = settings_of(tmp_path)
    assert load_links(ours, store).links == ()
    assert topics_of(ours.with_links(load_all_links(ours, store))) == {OTHER: ("bills",), LINK: ("orders",)}
    put(store, removed_link_row(row_of(store, OTHER), 1, "anna"))
    assert [link.name for link in load_all_links(ours, store)] == [LINK]
    assert [link.name for link in load_all_links(mirrors, store)] == [LINK]


def test_of_a_link_that_was_turned_it_is_said_into_which(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, section(LINK, "orders"))
    with open_store(settings.store.url) as store:
        adopt_settings(settings, store, by="the settings")
        put(
            store,
            removed_link_row(row_of(store, LINK), 5, "anna"),
            new_link_row("west->east", {"topics": ["orders"]}, 5, "anna"),
        )
        told = [str(one) for one in list_link_remarks(settings, store, now_ms=5)]
        assert [mentions(one, LINK, "turned into west->east by anna") for one in told] == [True]
