"""`twinshore switch`: what its verbs say where nothing can be switched yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, write_settings
from twinshore.fleet import ConfigError


@pytest.mark.parametrize("words", [("plan",), ("run",), ("run", "--dry-run"), ("drill",)])
def test_before_a_mirror_has_run_each_verb_refuses_alike(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A plan that went on would say that the topic is carried by no link, though its link admits it."""
    file = write_settings(tmp_path, f'[links."{LINK}"]\n')
    with pytest.raises(ConfigError, match="there is no store yet: no mirror has run") as refused:
        asking.run(file, "switch", *words, "orders", "--to", LINK.partition("->")[2])
    assert refused.value.hint.startswith("start one with `twinshore mirror run`")
