"""The section `delay`: what the monitor watches, when and where alarms are sent, and quiet times without messages."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from twinshore.config.declaration import live_setting, setting, setting_rows
from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret, first_match
from twinshore.config.schema import (
    Complaints,
    PatternNumbers,
    RawSection,
    Section,
    did_you_mean,
    read_numbers,
    read_section,
)

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:(?P<days>[A-Za-z]{3}(?:,[A-Za-z]{3})*) )?(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)")
DAY_MINUTES = 24 * 60


class QuietTime(NamedTuple):
    """Minutes of a UTC day. A time that ends before it begins continues into the next day. `days`: days of its
    beginning, all if empty.
    """

    days: frozenset[int]
    begin: int
    end: int


def parse_quiet(text: str) -> QuietTime:
    """Parses `22:00-06:00` or `Sat,Sun 10:00-12:00`. Raises ValueError."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time like 22:00-06:00 or Sat,Sun 10:00-12:00, in UTC")
    names = [name.lower() for name in (found["days"] or "").split(",") if name]
    for name in names:
        if name not in DAYS:
            raise ValueError(f"{text!r}: no such day {name!r}; known: {', '.join(DAYS)}")
    begin, end = _minutes(found["from"], text), _minutes(found["to"], text)
    if begin == end:
        raise ValueError(f"{text!r} has no length")
    return QuietTime(frozenset(DAYS.index(name) for name in names), begin, end)


def is_quiet(times: Iterable[QuietTime], now_ms: int) -> bool:
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    minute, today = moment.hour * 60 + moment.minute, moment.weekday()
    return any(_holds(one, minute, today) for one in times)


def _holds(one: QuietTime, minute: int, today: int) -> bool:
    if one.begin < one.end:
        return one.begin <= minute < one.end and _begins(one, today)
    yesterday = (today - 1) % len(DAYS)
    return (minute >= one.begin and _begins(one, today)) or (minute < one.end and _begins(one, yesterday))


def _begins(one: QuietTime, day: int) -> bool:
    return not one.days or day in one.days


def _minutes(text: str, whole: str) -> int:
    hours, _, minutes = text.partition(":")
    found = int(hours) * 60 + int(minutes)
    if found > DAY_MINUTES or int(minutes) > 59:
        raise ValueError(f"{whole!r}: no such time {text}")
    return found


THRESHOLD_MAX = 1 << 62
AGE_MAX_S = 31_536_000
# Each a table from expression to number; the first that matches a topic's whole name counts.
THRESHOLD_TABLES = {
    "latest_thresholds": THRESHOLD_MAX,
    "consume_thresholds": THRESHOLD_MAX,
    "recovery_points_s": AGE_MAX_S,
}
_WEBHOOKS = "webhooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySection:
    """The delay monitor. Besides, by topic: `latest_thresholds`, `consume_thresholds` and `recovery_points_s`, each a
    table from expression to whole number; the first that matches the whole name counts, instead of the setting for all.
    """

    period_s: float = setting(5.0, "period of the windows: how often they get a sample", low=0.2, high=3600)
    sample_s: float = setting(
        0.5, "how often both clusters' log ends are read for the recovery point", low=0.1, high=3600
    )
    min_delay_latest_offset: int = live_setting(
        0, "a partition that advances by no more in one period is quiet and not judged", low=0, high=THRESHOLD_MAX
    )
    min_delay_consume_offset: int = live_setting(
        0, "a group that advances by no more in one period is quiet and not judged", low=0, high=THRESHOLD_MAX
    )
    groups: bool = setting(True, "watch consumer groups too, those that the link syncs")
    recovery_point_s: float = live_setting(
        10.0, "alarm if records have been on the source for longer without being replicated", low=0.1, high=AGE_MAX_S
    )
    heartbeat_s: float = live_setting(
        30.0, "alarm if no new heartbeat has been replicated for so long; 0: never", low=0, high=AGE_MAX_S
    )
    blind_s: float = live_setting(
        60.0, "alarm if a link could not be read or judged for so long", low=1, high=AGE_MAX_S
    )
    rise_s: float = live_setting(0.0, "how long a problem must last before an alarm is raised", low=0, high=86400)
    clear_s: float = live_setting(
        15.0, "how long a problem must be absent before its alarm is cleared", low=0, high=86400
    )
    repeat_s: float = live_setting(
        900.0, "how often an open alarm is sent again, at most; 0: never again", low=0, high=604800
    )
    quiet: tuple[str, ...] = live_setting(
        (), "times of day, UTC, in which no alarm is sent: `22:00-06:00`, `Sat,Sun 10:00-12:00`"
    )
    webhook: str = live_setting(
        "", "label of a `[delay.webhooks.LABEL]` that gets the alarms, instead of `webhook_url`"
    )
    webhook_url: str = setting("", "URL that gets each alarm as JSON by POST; empty: none")
    webhook_url_env: str = setting("", "environment variable that holds the URL, if it is a secret")
    webhook_url_file: str = setting("", "file that holds the URL, if it is a secret")
    webhook_token_env: str = setting("", "environment variable that holds the bearer token")
    webhook_token_file: str = setting("", "file that holds the bearer token")
    webhook_timeout_s: float = setting(5.0, "timeout of the webhook", low=0.1, high=60)
    metrics_address: str = setting("127.0.0.1", "address that serves the monitor's /metrics and /health")
    metrics_port: int = setting(0, "port of /metrics and /health; 0: none", low=0, high=65535)
    folder: str = setting("twinshore-delay", "folder for samples and the state of the windows")
    windows: Literal["spark", "plain"] = setting(
        "spark", "where windows run: `spark`: a Structured Streaming query; `plain`: in the monitor itself"
    )
    master: str = setting("local[2]", "Spark's master for that query; workers must see the same folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSection:
    """A target that `webhook` may name, also in the store. No other URL gets alarms there."""

    url: str = setting("", "URL that gets each alarm as JSON by POST")
    url_env: str = setting("", "environment variable that holds the URL, if it is a secret")
    url_file: str = setting("", "file that holds the URL, if it is a secret")
    token_env: str = setting("", "environment variable that holds the bearer token")
    token_file: str = setting("", "file that holds the bearer token")


def _own_target(section: DelaySection) -> WebhookSection:
    return WebhookSection(**{row.name: getattr(section, f"webhook_{row.name}") for row in setting_rows(WebhookSection)})


@dataclass(frozen=True, slots=True)
class DelaySettings:
    """`webhooks`: by label."""

    section: DelaySection = field(default_factory=DelaySection)
    latest_thresholds: PatternNumbers = ()
    consume_thresholds: PatternNumbers = ()
    recovery_points_s: PatternNumbers = ()
    webhooks: Mapping[str, WebhookSection] = field(default_factory=dict)

    @property
    def target(self) -> WebhookSection:
        """Where alarms are sent."""
        return self.webhooks[self.section.webhook] if self.section.webhook else _own_target(self.section)

    @property
    def token(self) -> Secret:
        return Secret(env=self.target.token_env, file=self.target.token_file)

    @property
    def hook_url(self) -> str:
        """The present URL for alarms; empty for none.

        Raises ConfigError if a secret's content is no URL; the message does not show the content.
        """
        target = self.target
        kept = Secret(env=target.url_env, file=target.url_file)
        if not kept:
            return target.url
        found = kept.read()
        if not is_url(found):
            where = f"file {kept.file}" if kept.file else f"environment variable {kept.env}"
            raise ConfigError("config.webhook-not-url", place=where)
        return found

    def latest_threshold(self, topic: str) -> int:
        return first_match(self.latest_thresholds, topic, self.section.min_delay_latest_offset)

    def consume_threshold(self, topic: str) -> int:
        return first_match(self.consume_thresholds, topic, self.section.min_delay_consume_offset)

    def recovery_point_s(self, topic: str) -> float:
        found = first_match(self.recovery_points_s, topic, -1)
        return self.section.recovery_point_s if found < 0 else found


def read_delay(raw: RawSection, complaints: Complaints) -> DelaySettings:
    place = raw.place
    rest, inner = raw.parted(*THRESHOLD_TABLES, _WEBHOOKS)
    tables = {
        name: read_numbers(inner[name], name, 0, high, place, complaints) for name, high in THRESHOLD_TABLES.items()
    }
    section = read_section(DelaySection, rest, place, complaints)
    webhooks = _read_webhooks(inner[_WEBHOOKS], place, complaints)
    if section is None:
        return DelaySettings()
    if section.webhook and section.webhook not in webhooks:
        complaints.add(place, f"webhook: no target {section.webhook!r}{did_you_mean(section.webhook, webhooks)}")
    for text in section.quiet:
        try:
            parse_quiet(text)
        except ValueError as error:
            complaints.add(place, f"quiet: {error}")
    if section.sample_s > section.period_s:
        complaints.add(place, f"sample_s: is {section.sample_s:g}, must not exceed period_s ({section.period_s:g})")
    _check_target(_own_target(section), "webhook_", place, complaints)
    return DelaySettings(section, **tables, webhooks=webhooks)


def _read_webhooks(tables: object, place: str, complaints: Complaints) -> dict[str, WebhookSection]:
    if not isinstance(tables, Mapping):
        complaints.add(place, f"{_WEBHOOKS}: must be tables [delay.{_WEBHOOKS}.LABEL], not {tables!r}")
        return {}
    found = {}
    for label, raw in tables.items():
        where = f"[delay.{_WEBHOOKS}.{label}]"
        found[str(label)] = target = read_section(WebhookSection, raw, where, complaints) or WebhookSection()
        _check_target(target, "", where, complaints)
        if not (target.url or target.url_env or target.url_file):
            complaints.add(where, "needs url, url_env or url_file")
    return found


def _check_target(target: WebhookSection, prefix: str, place: str, complaints: Complaints) -> None:
    """`prefix`: of the keys in `place`."""
    if target.token_env and target.token_file:
        complaints.add(place, f"{prefix}token_env and {prefix}token_file: one or the other")
    if sum(map(bool, (target.url, target.url_env, target.url_file))) > 1:
        complaints.add(place, f"{prefix}url, {prefix}url_env and {prefix}url_file: one of them")
    if target.url and not is_url(target.url):
        complaints.add(place, f"{prefix}url: {target.url!r} is not like https://host/path")
    elif target.url and urlsplit(target.url).password:
        complaints.add(place, f"{prefix}url: a secret never stands in the settings; use {prefix}token_env")


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


SECTION = Section(
    "delay",
    50,
    (("[delay]", DelaySection), (f"[delay.{_WEBHOOKS}.LABEL]", WebhookSection)),
    read_delay,
    overridden=True,
    live_tables=tuple(THRESHOLD_TABLES),
)
