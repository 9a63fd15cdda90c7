"""What operators may ask of a fail-back: refused in time, and without a word to a cluster where the store knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.switch.flips import flip_of
from tests.switch.test_operations import settings, store  # noqa: F401 - fixtures
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings
from twinshore.state.store import Store
from twinshore.switch.operations.returning import FailbackRequest, plan_failback, rescue_folder

pytestmark = pytest.mark.usefixtures("short_patience")

POINTS = (7,)


def flipped(store: Store, home: str = "west") -> None:  # noqa: F811
    old, term = ("east", 2) if home == "west" else ("west", 3)
    store.topics_in_switch.change_homes([flip_of("orders", old, home, term, POINTS)], [])


@pytest.mark.parametrize(
    ("topics", "old", "words"),
    [
        (["orders"], "esat", "esat"),
        (["("], "east", "TOPIC"),
        (["orders"], "east", "no switch has moved orders away from east"),
    ],
)
def test_what_is_not_meant_is_told(settings: Settings, store: Store, topics: list[str], old: str, words: str) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        plan_failback(FailbackRequest(topics, old), settings, store)


def test_a_site_that_is_still_away_is_waited_for(settings: Settings, store: Store) -> None:  # noqa: F811
    _give_link_back(settings)
    from twinshore.config.settings import load_settings

    assert settings.file is not None
    loaded = load_settings(settings.file, {})
    flipped(store)
    planned = plan_failback(FailbackRequest(["orders"], "east"), loaded, store)
    assert planned.state is None
    assert "does not answer" in str(planned.refusal)
    flipped(store, "east")
    with pytest.raises(ConfigError, match="no switch has moved"):
        plan_failback(FailbackRequest(["orders"], "east"), loaded, store)


def test_files_lie_beside_the_settings(settings: Settings, tmp_path: Path) -> None:  # noqa: F811
    assert rescue_folder(settings) == tmp_path / "rescued"
    assert rescue_folder(settings, tmp_path / "elsewhere") == tmp_path / "elsewhere"


def _give_link_back(settings: Settings) -> None:  # noqa: F811
    assert settings.file is not None
    settings.file.write_text(settings.file.read_text() + '[links."west->east"]\ntopics = ["orders"]\n')
