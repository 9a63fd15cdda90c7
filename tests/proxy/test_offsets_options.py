"""What is asked of a reset, as options say it."""

from __future__ import annotations

from testkit.errors import raises
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
    with raises(ConfigError, "proxy.reset-targets-many"):
        parse_reset_request("billing", [], resume=True, undo=True)
    with raises(ConfigError, "proxy.reset-with-topics"):
        parse_reset_request("billing", ["orders"], undo=True)
    with raises(ConfigError, "proxy.reset-targets-many"):
        parse_reset_request("billing", [], undo=True, offset=3)
    for name in ("", "x" * 256):
        with raises(ConfigError, "proxy.group-name-invalid", max=255):
            parse_reset_request(name, [], latest=True)
