"""The section `log`: how the processes that run until stopped write their logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How `mirror run`, `proxy run`, `push serve` and `delay watch` write their logs; see docs/operations.md."""

    format: Literal["text", "json"] = setting("text", "`text`: time of day and message; `json`: one object a line")
    level: Literal["info", "warning", "error"] = setting(
        "info",
        "the lowest level that is written. `info`: the course of things; `warning`: a failure that is retried, or an"
        " outage; `error`: something has stopped, and a person must act",
    )


def read_log(raw: RawSection, complaints: Complaints) -> LogSettings:
    return read_section(LogSettings, raw.raw, raw.place, complaints) or LogSettings()


SECTION = Section("log", 90, (("[log]", LogSettings),), read_log, overridden=True)
