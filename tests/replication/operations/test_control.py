"""Changes of running links, asked as a program asks: a plan changes nothing, an act does what is asked."""

from __future__ import annotations

from testkit.errors import raises
from tests.replication.operations.asked import BACK, LINK, settings_of
from twinshore.config.errors import ConfigError
from twinshore.replication.operations import control
from twinshore.replication.operations.control import list_effective_links
from twinshore.state.store import Store

SETTINGS = settings_of(
    f"""[clusters.south]
bootstrap = ["127.0.0.1:3"]
[links."{LINK}"]
topics = ["orders.*"]
[links."{BACK}"]
topics = ["lists.*"]
[links."west->south"]
[links."south->east"]
topics = ["bills.*"]
"""
)


def change(asked: control.ControlRequest, store: Store, by: str = "anna") -> list[str]:
    planned = control.plan(asked, SETTINGS, store)
    return [step.sentence(done=True) for step in control.act(planned, SETTINGS, store, by=by)]


def test_a_plan_has_every_step_and_its_act_tells_the_audit_who_asked(store: Store) -> None:
    planned = control.plan(control.throttle(LINK, 5_000), SETTINGS, store)
    assert [step.sentence(done=False) for step in planned.steps] == [
        "east->west: throttle_bytes_s would change from 0 to 5000"
    ]
    assert store.controls.version(LINK) == 0, "nothing is changed yet"
    done = list(control.act(planned, SETTINGS, store, by="anna"))
    assert [step.sentence(done=True) for step in done] == ["east->west: throttle_bytes_s changes from 0 to 5000"]
    (told,) = store.audit.rows(LINK)
    assert (told.subject, told.after, told.outcome) == ("throttle_bytes_s", "5000", "by anna")
    assert control.plan(control.throttle(LINK, 5_000), SETTINGS, store).shown == ("east->west: nothing to change",)


def test_where_somebody_else_was_quicker_it_is_done_to_what_they_made(store: Store) -> None:
    planned = control.plan(control.pause(LINK, ["orders-old"]), SETTINGS, store)
    change(control.pause(LINK, ["orders-new"]), store, by="bert")
    (step,) = control.act(planned, SETTINGS, store, by="anna")
    assert (step.before, step.after) == ('["orders-new"]', '["orders-new", "orders-old"]')
    held = {one.link: one.as_values() for one in list_effective_links((), SETTINGS, store)}
    assert held[LINK]["paused_topics"] == {"value": ["orders-new", "orders-old"], "from": "store"}
    assert held[BACK]["paused_topics"] == {"value": [], "from": "settings"}


def test_it_says_which_pauses_stay_and_that_nobody_could_be_asked(store: Store) -> None:
    change(control.pause(LINK, ["orders-old"]), store)
    (stays,) = control.remarks(control.resume(LINK), SETTINGS, store, done=True)
    assert "still paused: topics 'orders-old'" in stays
    assert control.remarks(control.resume(LINK), SETTINGS, store, done=False) == []
    (unknown,) = control.remarks(control.prioritize(LINK, "orders-else", 20), SETTINGS, store, done=True)
    assert "is not known: east does not answer" in unknown


def test_what_cannot_be_is_refused_by_the_plan(store: Store) -> None:
    with raises(ConfigError, "replication.links-loop"):
        control.plan(control.set_filters(LINK, topics=["bills-new"]), SETTINGS, store)
    with raises(ConfigError, "replication.one-of-two", one="--all", other="--topic"):
        control.plan(control.resume(LINK, ["x"], every=True), SETTINGS, store)
