"""What operators may ask of a rebuild: refused in time, and without a word to a cluster where the store knows."""

from __future__ import annotations

import pytest

from tests.switch.test_operations import settings, store  # noqa: F401 - fixtures
from tests.switch.test_returning import flipped
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings
from twinshore.state.store import Store
from twinshore.switch.operations.returning import RebuildRequest, plan_rebuild

pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.mark.parametrize(
    ("link", "topic", "words"),
    [
        ("east->wset", "orders", "did you mean"),
        ("east..west", "ordres", "did you mean"),
        ("east->west", "orders.*", "has no twin of topic"),
    ],
)
def test_what_is_not_meant_is_told(settings: Settings, store: Store, link: str, topic: str, words: str) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match=words):
        plan_rebuild(RebuildRequest(link, [topic]), settings, store)


def test_what_stands_in_the_way_is_refused_before_anything_is_done(settings: Settings, store: Store) -> None:  # noqa: F811
    for link, words in (("east->west", "does not answer"), ("east->north", "other names")):
        planned = plan_rebuild(RebuildRequest(link, ["orders"]), settings, store)
        assert words in str(planned.refusal)
        assert (planned.steps, planned.state) == ((), None)


def test_a_topic_that_a_switch_has_moved_is_no_twin_here(settings: Settings, store: Store) -> None:  # noqa: F811
    flipped(store)
    with pytest.raises(ConfigError, match="has no twin"):
        plan_rebuild(RebuildRequest("east->west", ["orders"]), settings, store)
