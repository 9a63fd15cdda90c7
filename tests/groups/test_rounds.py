"""Rounds of one link: which groups follow is what operators say now, not what the settings said at the start."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.fleet.settings import parse_settings
from twinshore.groups.rounds import Rounds


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
