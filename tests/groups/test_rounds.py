"""Rounds of one link: which groups follow is what operators say now, not what the settings said at the start."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.fleet.settings import parse_settings
from twinshore.groups.place import NOTHING, State
from twinshore.groups.rounds import MARKS_KIND, Rounds
from twinshore.groups.translation import Spot
from twinshore.mirror.metrics.group_word import GROUPS_KIND
from twinshore.store import Followed, Store
from twinshore.wire.group_places import Place


def test_a_filter_for_groups_holds_from_the_next_round_on_without_a_restart(tmp_path: Path) -> None:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    settings = parse_settings(file.read_text(), name=file.name, env={})
    with (
        opened(file) as store,
        contextlib.closing(Rounds(settings.links[0], settings, store, retention_s=1.0)) as rounds,
    ):
        names = ("billing", "billing-test", "console-consumer-7")

        def admitted(now_s: float) -> list[str]:
            rounds.begin(now_s)
            return [name for name in names if rounds.admits(name)]

        assert admitted(0.0) == list(names)
        asking.run(file, "link", "filter", LINK, "--groups", "billing.*", "--exclude-groups", ".*-test")
        assert admitted(1.0) == ["billing"]
        asking.run(file, "link", "reset", LINK)
        assert admitted(2.0) == list(names)


def test_places_without_a_mark_are_the_links_only_until_a_version_that_marks_has_compared_them_all(
    tmp_path: Path,
) -> None:
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    settings = parse_settings(file.read_text(), name=file.name, env={})

    def unmarked(store: Store, *, compared: bool) -> State:
        """What the next process makes of one; whether it comes to compare all groups before it ends."""
        with contextlib.closing(Rounds(settings.links[0], settings, store, retention_s=1.0)) as rounds:
            rounds.begin(0.0)
            found = rounds._decide(Place(50), Spot(50), 99, Place(20), NOTHING).state
            if compared:
                rounds._note_marks()
                assert rounds._decide(Place(50), Spot(50), 99, Place(20), NOTHING).state is State.OWN
            return found

    with opened(file) as store:
        assert unmarked(store, compared=False) is State.OWN, "a new link has put nothing there"
        store.remember([Followed(LINK, GROUPS_KIND, "", "{}", GROUPS_KIND, 5)])
        assert unmarked(store, compared=False) is State.MOVES, "an earlier version did"
        assert unmarked(store, compared=True) is State.MOVES, "the process before did not come to compare them"
        assert [row.kind for row in store.followed(LINK, MARKS_KIND)] == [MARKS_KIND]
        assert unmarked(store, compared=True) is State.OWN
