"""The section `delay`: what the monitor watches, when it calls, and whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from twinshore.fleet.control import first_match
from twinshore.fleet.nouns import Secret
from twinshore.fleet.quiet import parse_quiet
from twinshore.fleet.settings_control import why_not_pattern
from twinshore.fleet.settings_edge import Complaints, did_you_mean, read_section
from twinshore.fleet.settings_table import setting

PLACE = "[delay]"
OFFSET_MAX = 1 << 62
AGE_MAX_S = 31_536_000
ENGINES = ("spark", "plain")
# Each a table from expression to number; the first that matches a topic's whole name counts.
TABLES = {"latest_thresholds": OFFSET_MAX, "consume_thresholds": OFFSET_MAX, "recovery_points_s": AGE_MAX_S}
Numbers = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySection:
    """The delay monitor. Besides, by topic: `latest_thresholds`, `consume_thresholds` and `recovery_points_s`, each a
    table from expression to whole number; the first that matches the whole name counts, instead of the setting for all.
    """

    period_s: float = setting(
        5.0,
        "PT of the published windows: how often they are given a reading; the mirror's sync period",
        low=0.2,
        high=3600,
    )
    sample_s: float = setting(0.5, "how often both clusters' ends are read for the recovery point", low=0.1, high=3600)
    min_delay_latest_offset: int = setting(
        0, "a partition that moves no more than this in one period is quiet, and not judged", low=0, high=OFFSET_MAX
    )
    min_delay_consume_offset: int = setting(
        0, "a group that moves no more than this in one period is quiet, and not judged", low=0, high=OFFSET_MAX
    )
    groups: bool = setting(True, "watch consumer groups too, those that the link's control lets follow")
    recovery_point_s: float = setting(
        10.0, "alarm when records have been on the source for longer and have not crossed", low=0.1, high=AGE_MAX_S
    )
    heartbeat_s: float = setting(
        30.0, "alarm when no new heartbeat has crossed for so long; 0: never", low=0, high=AGE_MAX_S
    )
    blind_s: float = setting(60.0, "alarm when a link could not be read or judged for so long", low=1, high=AGE_MAX_S)
    rise_s: float = setting(
        0.0, "how long something must be wrong without a break before it is told", low=0, high=86400
    )
    clear_s: float = setting(15.0, "how long it must be right without a break before that is told", low=0, high=86400)
    repeat_s: float = setting(900.0, "a standing alarm is told again no sooner; 0: never again", low=0, high=604800)
    quiet: tuple[str, ...] = setting(
        (), "times of day, UTC, in which nobody is called: `22:00-06:00`, `Sat,Sun 10:00-12:00`"
    )
    webhook_url: str = setting("", "gets each alarm as JSON by POST; empty: none")
    webhook_token_env: str = setting("", "environment variable with the token that goes along as `Bearer`")
    webhook_token_file: str = setting("", "file with that token")
    webhook_timeout_s: float = setting(5.0, "how long the webhook may take to answer", low=0.1, high=60)
    metrics_address: str = setting("127.0.0.1", "address that serves the monitor's /metrics and /health")
    metrics_port: int = setting(0, "port that serves them; 0: none", low=0, high=65535)
    folder: str = setting("twinshore-delay", "folder for readings and for the windows' state")
    windows: str = setting(
        "spark",
        "where the published windows run: `spark`, a Structured Streaming query, or `plain`, in the monitor itself",
    )
    master: str = setting("local[2]", "Spark's master for that query; workers must see the same folder")


@dataclass(frozen=True, slots=True)
class DelaySettings:
    """The section's values, and its tables."""

    section: DelaySection = field(default_factory=DelaySection)
    latest_thresholds: Numbers = ()
    consume_thresholds: Numbers = ()
    recovery_points_s: Numbers = ()

    @property
    def token(self) -> Secret:
        return Secret(env=self.section.webhook_token_env, file=self.section.webhook_token_file)

    def latest_threshold(self, topic: str) -> int:
        return first_match(self.latest_thresholds, topic, self.section.min_delay_latest_offset)

    def consume_threshold(self, topic: str) -> int:
        return first_match(self.consume_thresholds, topic, self.section.min_delay_consume_offset)

    def recovery_point_s(self, topic: str) -> float:
        found = first_match(self.recovery_points_s, topic, -1)
        return self.section.recovery_point_s if found < 0 else found


def read_delay(raw: object, complaints: Complaints) -> DelaySettings:
    """The section; complaints are added, and the defaults returned, where it is wrong."""
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    tables: dict[str, Any] = {}
    for name, highest in TABLES.items():
        table = rest.pop(name, {}) if isinstance(rest, dict) else {}
        tables[name] = _numbers(table, name, highest, complaints)
    section = read_section(DelaySection, rest, PLACE, complaints)
    if section is None:
        return DelaySettings()
    for text in section.quiet:
        try:
            parse_quiet(text)
        except ValueError as error:
            complaints.add(PLACE, f"quiet: {error}")
    if section.windows not in ENGINES:
        complaints.add(PLACE, f"windows: no such place {section.windows!r}{did_you_mean(section.windows, ENGINES)}")
    if section.sample_s > section.period_s:
        complaints.add(PLACE, f"sample_s: is {section.sample_s:g}, must not exceed period_s ({section.period_s:g})")
    if section.webhook_token_env and section.webhook_token_file:
        complaints.add(PLACE, "webhook_token_env and webhook_token_file: one or the other")
    if section.webhook_url:
        _check_url(section.webhook_url, complaints)
    return DelaySettings(section, **tables)


def _check_url(url: str, complaints: Complaints) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        complaints.add(PLACE, f"webhook_url: {url!r} is not like https://host/path")
    elif parts.password:
        complaints.add(PLACE, "webhook_url: a secret never stands in the settings; use webhook_token_env")


def _numbers(table: object, name: str, highest: int, complaints: Complaints) -> Numbers:
    if not isinstance(table, Mapping):
        complaints.add(PLACE, f'{name}: must be a table like {{ "orders.*" = 1000 }}, not {table!r}')
        return ()
    found = []
    for pattern, number in table.items():
        reason = why_not_pattern(pattern)
        if reason:
            complaints.add(PLACE, f"{name}: {reason}")
        if isinstance(number, bool) or not isinstance(number, int):
            complaints.add(PLACE, f"{name}: {pattern!r}: must be a whole number, not {number!r}; quote names with dots")
        elif not 0 <= number <= highest:
            complaints.add(PLACE, f"{name}: {pattern!r}: is {number}, must be 0 to {highest:,}")
        else:
            found.append((pattern, number))
    return tuple(found)
