"""Errors of the lab's servers."""

from __future__ import annotations

from pathlib import Path

from twinshore.config.errors import CodedError

_TAIL_BYTES = 6_000
_TAIL_LINES = 25


class LabError(CodedError):
    """A server of the lab failed, or something needed could not be fetched."""


def log_tail(log: Path) -> str:
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = handle.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError as error:
        return f"no log: {error.strerror}"
    return "\n".join(lines)
