"""What is asked of a reset, as options say it."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.proxy.core.offset_reset import ResetTarget, ResetTargetKind
from twinshore.proxy.operations.reset_offsets import ResetOffsets, UnfinishedResetAction, parse_reset_request


def test_options_are_one_thing() -> None:
    assert parse_reset_request("billing", []) == ResetOffsets("billing", {})
    assert parse_reset_request("billing", ["orders:1"], shift=-5, gather_s=3) == ResetOffsets(
        "billing", {"orders": frozenset({1})}, ResetTarget(ResetTargetKind.SHIFT, -5), gather_s=3
    )
    assert parse_reset_request("billing", [], resume=True) == ResetOffsets(
        "billing", {}, None, UnfinishedResetAction.RESUME
    )
    assert parse_reset_request("billing", [], undo=True) == ResetOffsets(
        "billing", {}, None, UnfinishedResetAction.UNDO
    )
    with pytest.raises(ConfigError, match="--resume and --undo are two things"):
        parse_reset_request("billing", [], resume=True, undo=True)
    with pytest.raises(ConfigError, match="knows its places by itself"):
        parse_reset_request("billing", ["orders"], undo=True)
    with pytest.raises(ConfigError, match="one thing at a time"):
        parse_reset_request("billing", [], undo=True, offset=3)
    for name in ("", "x" * 256):
        with pytest.raises(ConfigError, match="a name of 1 to 255 characters"):
            parse_reset_request(name, [], latest=True)
