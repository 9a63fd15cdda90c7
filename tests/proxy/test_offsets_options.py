"""What is asked of a reset, as options say it."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.proxy.core.offset_reset import GoalKind, Target
from twinshore.proxy.operations.offsets import Asked, Taking, asked_for


def test_options_are_one_thing() -> None:
    assert asked_for("billing", []) == Asked("billing", {})
    assert asked_for("billing", ["orders:1"], shift=-5, gather_s=3) == Asked(
        "billing", {"orders": frozenset({1})}, Target(GoalKind.SHIFT, -5), gather_s=3
    )
    assert asked_for("billing", [], resume=True) == Asked("billing", {}, None, Taking.UP)
    assert asked_for("billing", [], undo=True) == Asked("billing", {}, None, Taking.BACK)
    with pytest.raises(ConfigError, match="--resume and --undo are two things"):
        asked_for("billing", [], resume=True, undo=True)
    with pytest.raises(ConfigError, match="knows its places by itself"):
        asked_for("billing", ["orders"], undo=True)
    with pytest.raises(ConfigError, match="one thing at a time"):
        asked_for("billing", [], undo=True, offset=3)
    for name in ("", "x" * 256):
        with pytest.raises(ConfigError, match="a name of 1 to 255 characters"):
            asked_for(name, [], latest=True)
