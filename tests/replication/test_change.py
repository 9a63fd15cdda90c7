"""What operators ask of links: each plan says all, changes nothing, and is done whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from tests.replication.test_known import LINK, OTHER, put, section, settings_of, topics_of
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TwinNaming
from twinshore.config.settings import Settings
from twinshore.replication.core.link_config import new_link_row, removed_link_row
from twinshore.replication.links import adopt_settings, load_links
from twinshore.replication.operations import control
from twinshore.replication.operations import link_admin as change
from twinshore.replication.operations.control import act as act_control
from twinshore.replication.operations.control import plan as plan_control
from twinshore.replication.operations.link_admin import AddLink, ChangeLink, LinkRequest, RemoveLink, ReverseLink
from twinshore.state.core.values import HomeRow, LinkIdentity, LinkPresence, LinkRow, TwinRow
from twinshore.state.store import Store, open_store

BACK = "west->east"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path, section(LINK, "orders"))


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


def links(settings: Settings, store: Store) -> dict[str, tuple[str, ...]]:
    return topics_of(settings.with_links(load_links(settings, store).links))


def do(asked: LinkRequest, settings: Settings, store: Store) -> list[str]:
    planned = change.plan(asked, settings, store)
    if planned.refusal:
        raise planned.refusal
    return [step.sentence(done=True) for step in change.act(planned, settings, store, by="anna")]


def test_a_plan_changes_nothing(settings: Settings, store: Store) -> None:
    for asked in (AddLink(OTHER), ChangeLink(LINK, ['naming="prefix"']), ReverseLink(LINK), RemoveLink(LINK)):
        assert len(change.plan(asked, settings, store).steps) == 1
    assert store.link_rows.read() == (0, ())


def test_a_link_is_added_changed_and_removed_with_the_audit(settings: Settings, store: Store) -> None:
    assert do(AddLink("east..north", ['topics=["bills"]']), settings, store) == [
        'east->north: is added: topics ["bills"]'
    ]
    (said,) = do(ChangeLink(OTHER, ['naming="prefix"', "groups.enabled=false"]), settings, store)
    assert mentions(said, OTHER, "groups from not set", 'naming from not set to "prefix"')
    assert do(ChangeLink(OTHER, ["groups.every_s=5"], ["naming"]), settings, store) == [
        'east->north: is changed: groups from {"enabled": false} to {"enabled": false, "every_s": 5}, '
        'naming from "prefix" to not set'
    ]
    assert do(ChangeLink(OTHER, ["groups.every_s=5"]), settings, store) == []
    assert links(settings, store) == {OTHER: ("bills",), LINK: ("orders",)}
    assert do(RemoveLink(OTHER), settings, store) == ["east->north: is removed"]
    assert links(settings, store) == {LINK: ("orders",)}
    told = store.audit.rows(OTHER)
    assert [(row.kind, row.after == "removed", row.outcome) for row in told] == [
        ("link", True, "by anna"),
        ("link", False, "by anna"),
        ("link", False, "by anna"),
        ("link", False, "by anna"),
    ]


def test_a_word_on_a_link_of_the_settings_holds_over_a_restart_until_it_is_taken_back(
    settings: Settings, store: Store
) -> None:
    adopt_settings(settings, store, by="the settings")
    do(ChangeLink(LINK, ['topics=["letters"]']), settings, store)
    assert [link.topics for link in adopt_settings(settings, store, by="the settings").links] == [("letters",)]
    assert len(load_links(settings, store).differences) == 1
    assert do(ChangeLink(LINK, as_settings=True), settings, store) == [
        'east->west: is changed: topics from ["letters"] to ["orders"]'
    ]
    assert load_links(settings, store).differences == ()


def test_what_stays_of_a_removed_link_is_said_before(settings: Settings, store: Store) -> None:
    adopt_settings(settings, store, by="the settings")
    store.twins.save([TwinRow(LINK, "orders", number, "aa", "bb", 0, 0, 1) for number in range(3)])
    planned = change.plan(RemoveLink(LINK), settings, store)
    assert mentions(planned.shown[0], LINK, "west", "1 twin", "orders")
    assert [mentions(one, LINK, "settings") for one in planned.remarks] == [True]
    do(RemoveLink(LINK), settings, store)
    assert links(settings, store) == {}
    assert store.twins.count(LINK) == 3
    do(AddLink(LINK, ['topics=["orders"]']), settings, store)
    assert links(settings, store) == {LINK: ("orders",)}


def test_a_link_is_turned_with_what_operators_said_of_it(settings: Settings, store: Store) -> None:
    adopt_settings(settings, store, by="the settings")
    paused = plan_control(control.pause(LINK), settings, store)
    assert list(act_control(paused, settings, store, by="anna"))
    (said,) = do(ReverseLink(LINK), settings, store)
    assert mentions(said, LINK, BACK, "paused")
    assert links(settings, store) == {BACK: ("orders",)}
    assert [(row.name, row.value) for row in store.controls.of(BACK)] == [("paused", "true")]
    assert do(ReverseLink(BACK), settings, store)
    assert links(settings, store) == {LINK: ("orders",)}, "and back"


def test_a_turned_link_has_what_was_said_of_it_last_and_nothing_of_an_earlier_life(
    settings: Settings, store: Store
) -> None:
    """Else a link that was turned back would stand paused, and nobody had said so."""
    adopt_settings(settings, store, by="the settings")
    for asked in (control.pause(LINK), control.throttle(LINK, 1000)):
        assert list(act_control(plan_control(asked, settings, store), settings, store, by="anna"))
    seen = store.controls.version(LINK)
    do(ReverseLink(LINK), settings, store)
    assert [(row.kind, row.subject, row.after) for row in store.audit.rows(BACK) if row.kind == "control"] == [
        ("control", "throttle_bytes_s", "1000"),
        ("control", "paused", "true"),
    ]
    assert store.controls.of(LINK) == (), "what was said goes with it"
    assert not store.controls.change(LINK, {}, seen=seen, told=[]), "whoever looked before has to look again"
    there = settings.with_links(load_links(settings, store).links)
    assert list(act_control(plan_control(control.reset(BACK, ("paused",)), there, store), there, store, by="anna"))
    do(ReverseLink(BACK), settings, store)
    assert [(row.name, row.value) for row in store.controls.of(LINK)] == [("throttle_bytes_s", "1000")]


def test_a_link_with_twins_is_not_turned_from_either_side(settings: Settings, store: Store) -> None:
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    with raises(RefusedError, "replication.link-has-twins", written_by=LINK, cluster="west", twins="orders"):
        do(ReverseLink(LINK), settings, store)
    do(RemoveLink(LINK), settings, store)
    do(AddLink(BACK, ['topics=["letters"]']), settings, store)
    with raises(RefusedError, "replication.link-has-twins", link=BACK, written_by=LINK, cluster="west", twins="orders"):
        do(ReverseLink(BACK), settings, store)


def test_a_twin_that_came_since_a_turn_was_planned_is_named(settings: Settings, store: Store) -> None:
    planned = change.plan(ReverseLink(LINK), settings, store)
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    with raises(RefusedError, "replication.link-has-twins", written_by=LINK, cluster="west", twins="orders"):
        list(change.act(planned, settings, store, by="anna"))
    assert links(settings, store) == {LINK: ("orders",)}


def test_the_twin_of_the_heartbeats_does_not_keep_a_link_from_being_turned(settings: Settings, store: Store) -> None:
    """A mirror with usual settings makes it in its first seconds; it is called by its source and never goes back."""
    beats = [
        TwinRow(LINK, name, 0, "aa", f"b{at}", 0, 0, 1) for at, name in enumerate((HEARTBEATS, f"far.{HEARTBEATS}"))
    ]
    store.twins.save(beats)
    assert do(ReverseLink(LINK), settings, store) == ["east->west: is turned into west->east"]
    assert store.twins.of(BACK) == (), "the turned link has heartbeats of its own"
    store.twins.save([TwinRow(BACK, HEARTBEATS, 0, "cc", "dd", 0, 0, 1)])
    assert do(ReverseLink(BACK), settings, store), "and back, over the twins of both"
    assert [row.topic for row in store.twins.of(LINK)] == [f"far.{HEARTBEATS}", HEARTBEATS], (
        "they go on where they stood"
    )
    assert links(settings, store) == {LINK: ("orders",)}


def test_of_a_pair_of_links_none_is_turned(tmp_path: Path, store: Store) -> None:
    both = settings_of(tmp_path, section(LINK, "orders"), section(BACK, "bills"))
    with raises(RefusedError, "replication.reverse-link-exists", link=LINK, reverse=BACK):
        do(ReverseLink(LINK), both, store)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (AddLink(LINK), "link east->west exists already"),
        (AddLink("east->south"), "no cluster 'south'; did you mean north"),
        (AddLink("east"), "is not a link's name"),
        (AddLink(OTHER, ["topics=orders"]), "'topics=orders' is not a value"),
        (AddLink(OTHER, ['topcs=["a"]']), "did you mean topics"),
        (AddLink("north->west", ['topics=["orders"]']), "north->west"),
        (ChangeLink(OTHER, ["chain=true"]), "there is no link 'east->north'"),
        (ChangeLink(LINK, ['naming="other"']), "no such value 'other'"),
        (ChangeLink(LINK, unset=["naming"]), "'naming' is not set"),
        (ChangeLink(LINK, ["chain=true"], as_settings=True), "--as-settings takes each"),
        (ReverseLink(OTHER), "there is no link 'east->north'"),
        (RemoveLink(OTHER), "there is no link 'east->north'; did you mean east->west"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    asked: LinkRequest, sentence: str, settings: Settings, store: Store
) -> None:
    with pytest.raises(ConfigError) as caught:
        do(asked, settings, store)
    assert sentence in f"{caught.value.message} {caught.value.hint}"
    assert store.link_rows.read() == (0, ())


def test_a_link_that_closes_a_ring_is_refused_and_a_way_back_is_added(tmp_path: Path, store: Store) -> None:
    """Of a pair each topic goes from its home."""
    onward = settings_of(tmp_path, section(LINK, "orders"), section("west->north", "orders"))
    with raises(ConfigError, "replication.links-loop"):
        do(AddLink("north->east", ['topics=["ord.*"]']), onward, store)
    assert do(AddLink(BACK, ['topics=["ord.*"]']), onward, store) == ['west->east: is added: topics ["ord.*"]']


def test_a_change_is_judged_beside_links_of_other_settings(tmp_path: Path, settings: Settings, store: Store) -> None:
    adopt_settings(settings, store, by="the settings")
    laptop = settings_of(tmp_path)
    with raises(ConfigError, "replication.links-collide", links="east->west and north->west"):
        do(AddLink("north->west", ['topics=["ord.*"]']), laptop, store)
    assert do(AddLink("north->west", ['topics=["bills"]']), laptop, store)


def test_links_that_clash_keep_nobody_from_changing_others(settings: Settings, store: Store) -> None:
    adopt_settings(settings, store, by="the settings")
    put(store, new_link_row("north->west", {"topics": ["orders"]}, 5, "anna"))
    assert do(AddLink(OTHER, ['topics=["bills"]']), settings, store)
    with raises(ConfigError, "replication.links-collide", topics="topics like orders"):
        do(ChangeLink("north->west", ["chain=true"]), settings, store)
    assert do(RemoveLink("north->west"), settings, store)


def test_a_link_that_names_a_broadcast_of_another_source_is_refused(settings: Settings, store: Store) -> None:
    do(ChangeLink(LINK, ['broadcast="prices"']), settings, store)
    with pytest.raises(ConfigError, match="'prices' reads 'east', by east->west, and this link 'north'"):
        do(AddLink("north->west", ['topics=["bills"]', 'broadcast="prices"']), settings, store)
    assert do(AddLink(OTHER, ['topics=["orders"]', 'broadcast="prices"']), settings, store)


def test_a_link_of_a_broadcast_is_told_what_others_of_it_have_and_it_has_not(settings: Settings, store: Store) -> None:
    fresh = ['broadcast="prices"', 'queue={policy="fresh", max_age_s=2}']
    assert [mentions(one, "prices") for one in change.plan(AddLink(OTHER, fresh), settings, store).remarks] == [True]
    do(AddLink(OTHER, fresh), settings, store)
    for asked in (ChangeLink(LINK, ['broadcast="prices"']), ChangeLink(LINK, ['broadcast="price"'])):
        (said,) = change.plan(asked, settings, store).remarks
        assert ("its queue keeps all, while that of east->north is fresh" in said) is ("prices" in asked.values[0])
        assert ("did you mean prices?" in said) is ("prices" not in asked.values[0])
    same = change.plan(ChangeLink(LINK, fresh), settings, store)
    assert same.remarks == ()


def test_what_a_fresh_queue_makes_of_the_twins_that_are_there_is_said_before(settings: Settings, store: Store) -> None:
    rows = [TwinRow(LINK, topic, 0, "aa" * 16, "bb" * 16, 0, 0, 5) for topic in ("orders", "bills", HEARTBEATS)]
    store.twins.save(rows)
    store.offset_runs.continue_exact([(rows[1], [OffsetRun(SourceOffset(7), TargetOffset(9), 0, 0)])])
    fresh = ['broadcast="prices"', 'queue={policy="fresh", max_age_s=2}']
    said = change.plan(ChangeLink(LINK, fresh), settings, store).remarks
    assert "are stopped from then on" in said[-1]
    assert "`twinshore mirror forget`" in said[-1]
    assert change.plan(ChangeLink(LINK, ["chain=true"]), settings, store).remarks == ()


def test_what_was_planned_is_not_done_to_something_else(settings: Settings, store: Store) -> None:
    planned = change.plan(ChangeLink(LINK, ['topics=["letters"]']), settings, store)
    do(ChangeLink(LINK, ['topics=["bills"]']), settings, store)
    with raises(ConfigError, "replication.links-changed"):
        list(change.act(planned, settings, store, by="bert"))
    assert links(settings, store) == {LINK: ("bills",)}


def test_what_a_turn_refuses_is_refused_to_a_link_that_is_added_the_other_way_round(
    settings: Settings, store: Store
) -> None:
    """Where the journal of twins cannot be read, nothing else would keep them from being carried back."""
    adopt_settings(settings, store, by="the settings")
    store.twins.save([TwinRow(LINK, topic, 0, "aa", f"b{topic}", 0, 0, 1) for topic in ("orders", HEARTBEATS)])
    do(RemoveLink(LINK), settings, store)
    planned = change.plan(AddLink(BACK), settings, store)
    assert planned.steps == (), "a dry run shows it"
    assert planned.refusal
    assert "is there no more, has twins on west (orders)" in str(planned.refusal.message)
    with pytest.raises(RefusedError):
        do(AddLink(BACK), settings, store)
    assert do(AddLink(BACK, ['exclude=["ord.*"]']), settings, store)
    for asked in (ChangeLink(BACK, unset=["exclude"]), ChangeLink(BACK, ['exclude=["letters"]'])):
        with pytest.raises(RefusedError, match=r"has twins on west \(orders\)"):
            do(asked, settings, store)
    assert do(ChangeLink(BACK, ['topics=["bills"]']), settings, store), "what is not carried back may be changed"
    store.forget_topic(LINK, "orders")
    assert do(ChangeLink(BACK, unset=["exclude"]), settings, store)


def test_twins_with_their_sources_name_are_known_by_that_name(settings: Settings, store: Store) -> None:
    do(ChangeLink(LINK, ['naming="prefix"']), settings, store)
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    do(RemoveLink(LINK), settings, store)
    with pytest.raises(RefusedError, match=r"has twins on west \(east\.orders\)"):
        do(AddLink(BACK), settings, store)
    assert do(AddLink(BACK, ['topics=["orders"]']), settings, store), "the orders of the west are its own"


@pytest.mark.claim("topics", "names-stay", "a link with twins takes no other naming: from a verb, or from the settings")
def test_a_link_keeps_its_naming_while_it_has_twins(settings: Settings, store: Store) -> None:
    """Under the other name the target may have a topic of its own, with records and ACLs."""
    adopt_settings(settings, store, by="the settings")
    do(ChangeLink(LINK, ['naming="prefix"']), settings, store)
    store.twins.save([TwinRow(LINK, topic, 0, "aa", f"b{topic}", 0, 0, 1) for topic in ("orders", HEARTBEATS)])
    for asked in (ChangeLink(LINK, unset=["naming"]), ChangeLink(LINK, as_settings=True)):
        with raises(ConfigError, "replication.naming-fixed", link=LINK, twins="orders"):
            do(asked, settings, store)
    assert do(ChangeLink(LINK, ["chain=true"]), settings, store)
    do(RemoveLink(LINK), settings, store)
    with raises(ConfigError, "replication.naming-fixed", link=LINK, twins="orders"):
        do(AddLink(LINK), settings, store)
    assert do(AddLink(LINK, ['naming="prefix"']), settings, store)
    store.forget_topic(LINK, "orders")
    assert do(ChangeLink(LINK, unset=["naming"]), settings, store)


def test_a_twin_that_is_made_while_a_link_is_renamed_has_the_name_that_stands(settings: Settings, store: Store) -> None:
    """The mirror takes a change up a second later."""
    row = TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)
    adopt_settings(settings, store, by="the settings")
    do(ChangeLink(LINK, ['naming="prefix"']), settings, store)
    with raises(ConfigError, "state.naming-changed", links=LINK):
        store.twins.save([row], TwinNaming.SAME)
    asked = LinkRow(LINK, LinkPresence.KEPT, "{}", "", 0, 5, "anna")
    store.twins.save([row], TwinNaming.PREFIX)
    assert not store.link_rows.change([asked], seen=store.link_rows.read()[0]), "planned before the twin was there"
    store.forget_topic(LINK, "orders")
    assert store.link_rows.change([asked], seen=store.link_rows.read()[0])


def test_settings_rename_no_twins(tmp_path: Path, settings: Settings, store: Store) -> None:
    adopt_settings(settings, store, by="the settings")
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    edited = settings_of(tmp_path, f'{section(LINK, "orders")}naming = "prefix"\n')
    with raises(ConfigError, "replication.naming-fixed", link=LINK, twins="orders"):
        adopt_settings(edited, store, by="the settings")
    assert adopt_settings(settings, store, by="the settings").links == tuple(settings.links), "nothing was written"


def test_a_topic_at_home_on_the_target_is_left_alone_and_one_that_was_brought_goes(
    settings: Settings, store: Store
) -> None:
    adopt_settings(settings, store, by="the settings")
    store.homes.settle([HomeRow("east<>west", topic, "east", 1, 1, "x") for topic in ("orders", "moved")])
    assert store.homes.move(HomeRow("east<>west", "moved", "west", 2, 2, "anna"), seen=1)
    store.twins.save([TwinRow(LINK, topic, 0, "aa", f"b{topic}", 0, 0, 1) for topic in ("orders", "moved")])
    do(RemoveLink(LINK), settings, store)
    planned = change.plan(AddLink(BACK), settings, store)
    assert (planned.refusal, len(planned.steps)) == (None, 1)
    assert [mentions(one, BACK, "at home on east: orders") for one in planned.shown] == [True]


def test_twins_of_a_link_between_the_same_clusters_are_known_by_any_name(settings: Settings, store: Store) -> None:
    """Clusters may have other names by now: their ids are compared, as far as links have told them."""
    store.twins.save([TwinRow("old->older", "orders", 0, "aa", "bb", 0, 0, 1)])
    put(store, removed_link_row(new_link_row("old->older", {}, 1, "anna"), 2, "anna"))
    assert change.plan(AddLink(BACK), settings, store).refusal is None, "it never began"
    store.links.save_identity(LinkIdentity("old->older", 1, 0, "id-old", "id-older"))
    assert change.plan(AddLink(BACK), settings, store).refusal is None, "a mirror knows it by their ids"
    store.links.save_identity(LinkIdentity("west->north", 2, 0, "id-older", "id-north"))
    store.links.save_identity(LinkIdentity("north->east", 3, 0, "id-north", "id-old"))
    do(AddLink("west->north", ['topics=["bills"]']), settings, store)
    do(AddLink("north->east", ['topics=["chalk"]']), settings, store)
    with raises(RefusedError, "replication.twins-carried-back", link=BACK):
        do(AddLink(BACK, ['topics=["orders"]']), settings, store)
    assert do(AddLink(BACK, ['topics=["maps"]']), settings, store)
