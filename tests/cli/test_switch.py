"""`twinshore switch`: what its verbs say where nothing can be switched yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import LINK, write_settings
from twinshore.cli.switch import agree
from twinshore.config.errors import ConfigError, RefusedError


@pytest.mark.parametrize("words", [("plan",), ("run",), ("run", "--dry-run"), ("drill",)])
def test_before_a_mirror_has_run_each_verb_refuses_alike(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A plan that went on would say that the topic is carried by no link, though its link admits it."""
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    with raises(ConfigError, "state.no-store") as refused:
        asking.run(file, "switch", *words, "orders", "--to", LINK.partition("->")[2])
    assert refused.value.hint.startswith("start one with `twinshore mirror run`")


def test_a_home_that_answers_is_not_left_by_habit(monkeypatch: pytest.MonkeyPatch) -> None:
    agree("", yes=True, alive="")
    agree("east", yes=True, alive="east")
    with raises(RefusedError, "cli.old-home-alive", cluster="east") as refused:
        agree("east", yes=True, alive="")
    assert "--alive east" in refused.value.hint
    for typed, goes_on in (("east", True), ("y", False), ("", False)):
        monkeypatch.setattr(typer, "prompt", lambda *_, typed=typed, **__: typed)
        if goes_on:
            agree("east", yes=False, alive="")
        else:
            with pytest.raises(typer.Abort):
                agree("east", yes=False, alive="")
