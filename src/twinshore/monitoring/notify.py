"""Sends alarms to a webhook and keeps the open alarms in the store, where a restarted process finds them.

The webhook gets JSON by POST from a separate thread, so a slow one blocks nothing.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from twinshore.config.errors import ConfigError, StoreError
from twinshore.config.model import Secret
from twinshore.config.sections.delay import DelaySection, DelaySettings, QuietTime, is_quiet, parse_quiet
from twinshore.kafka.oauth import NoRedirects
from twinshore.monitoring.core.alerts import (
    ActiveAlarm,
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTiming,
    AlarmTransition,
    AlertCondition,
    describe_event,
    is_hushed,
    shift_alarm_clock,
    update_alarms,
)
from twinshore.state.core.values import NO_MARKS, AlarmRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

QUEUED_EVENTS_MAX = 1000
DELIVERY_ATTEMPTS_MAX = 4
DELIVERY_RETRY_DELAY_S = 1.0


class Webhook:
    """Sends events in its own thread; `tell` returns at once. Failed deliveries are logged after some attempts.

    `url`: empty for no messages.
    """

    def __init__(self, url: str, token: Secret, timeout_s: float) -> None:
        self._target, self._timeout_s = (url, token), timeout_s
        self._waiting: queue.Queue[AlarmEvent | None] = queue.Queue(QUEUED_EVENTS_MAX)
        self._closed = threading.Event()
        self._opener = urllib.request.build_opener(NoRedirects)
        self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
        self._thread.start()

    def aim(self, url: str, token: Secret) -> None:
        """Sends there from now on."""
        self._target = url, token

    def tell(self, event: AlarmEvent) -> None:
        if not self._target[0]:
            return
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            log.warning(f"the webhook does not keep up; not told: {event.sentence}")

    def close(self) -> None:
        """Sends each waiting event once, and stops."""
        self._closed.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout=self._timeout_s * 2)
        if self._thread.is_alive():
            log.warning(f"the webhook does not keep up; {self._waiting.qsize()} more were not told")

    def _work(self) -> None:
        # `close` puts None to wake this thread; without space in the queue an event wakes it.
        while not (self._closed.is_set() and self._waiting.empty()):
            event = self._waiting.get()
            if event is not None:
                self._deliver(event)

    def _deliver(self, event: AlarmEvent) -> None:
        why = ""
        for number in range(DELIVERY_ATTEMPTS_MAX):
            why = self.post(event)
            if not why or self._closed.wait(DELIVERY_RETRY_DELAY_S * 2**number):
                break
        if why:
            log.warning(f"the webhook was not reached ({why}); not told: {event.sentence}")

    def post(self, event: AlarmEvent) -> str:
        """Returns why the request failed; empty on success."""
        headers = {"Content-Type": "application/json"}
        url, token = self._target
        try:
            if token:
                headers["Authorization"] = f"Bearer {token.read()}"
            request = urllib.request.Request(url, encode_event(event), headers, method="POST")
            with self._opener.open(request, timeout=self._timeout_s):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error)
        except Exception as error:
            # Any error of the other side or its address (http.client raises its own kinds): this thread alone sends
            # alarms, and must live to send the next.
            return str(error) or type(error).__name__


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code // 100 != 3:
        return str(error)
    # The path may be a secret, as with chat services.
    to = urlsplit(error.headers.get("Location", ""))
    where = f"{to.scheme}://{to.netloc}" if to.netloc else "another path"
    return f"it answers {error.code}, a redirect to {where}, which is not followed: name the URL where it leads"


def send_test(settings: DelaySettings, by: str, now_ms: int) -> str:
    """Sends one event that is no alarm. Returns why that failed; empty on success."""
    said = f"{by} tests this webhook: no alarm has risen."
    with closing(Webhook(settings.hook_url, settings.token, settings.section.webhook_timeout_s)) as hook:
        return hook.post(AlarmEvent(AlarmTransition.TEST, AlarmKey("", AlarmKind.MONITOR), now_ms, now_ms, said))


def encode_event(event: AlarmEvent) -> bytes:
    """The request body; chat services show `text`."""
    key = event.key
    body = {
        "text": f"{event.happening.upper()}: {describe_event(event)}",
        "happening": event.happening,
        "link": key.link,
        "kind": key.kind,
        "topic": key.topic,
        "group": key.group,
        "at_ms": event.at_ms,
        "raised_ms": event.raised_ms,
        "sentence": event.sentence,
        "parts": list(event.parts),
    }
    return json.dumps(body).encode()


# A store that is away may take ten seconds to fail, and nothing is judged in that time.
STORE_RETRY_INTERVAL_S = 5.0
# Silence and blindness have had their own time to rise.
IMMEDIATE_KINDS = frozenset({AlarmKind.BLIND, AlarmKind.HEARTBEAT, AlarmKind.MONITOR, AlarmKind.MIRROR})
# A condition that may pass within seconds is no cause yet, and its consequences wait as long.
CAUSE_RISE_S = 10.0
# Windows judge three periods, and restart after missing readings.
GROUPING_PERIODS = 6
GROUPING_MARGIN_S = 30.0
CAUSE_KINDS = frozenset({AlarmKind.CLUSTER, AlarmKind.STORE, AlarmKind.STOPPED})


def build_alarm_timings(section: DelaySection, *, mirror_s: float = 0.0) -> dict[AlarmKind, AlarmTiming]:
    """Timing of each alarm kind by the settings. `mirror_s`: how long a mirror may stay suspected of silence."""
    rise_s = {kind: 0.0 if kind in IMMEDIATE_KINDS else section.rise_s for kind in AlarmKind}
    rise_s |= dict.fromkeys(CAUSE_KINDS, CAUSE_RISE_S) | {AlarmKind.MIRROR: mirror_s}
    # By then all that a cause stops has been late for long enough to raise an alarm.
    bound_s = max(section.blind_s, section.heartbeat_s, section.recovery_point_s, GROUPING_PERIODS * section.period_s)
    with_s = bound_s + section.rise_s + GROUPING_MARGIN_S
    return {kind: AlarmTiming(rise_s[kind], section.clear_s, section.repeat_s, with_s) for kind in AlarmKind}


def open_alarm_manager(
    settings: DelaySettings, store: Store, stack: ExitStack, *, mirror_s: float = 0.0
) -> ConfiguredAlarms:
    """Opens an alarm manager by these settings; messages go to the webhook until the stack closes. `mirror_s` as in
    `build_alarm_timings`.
    """
    hook = Webhook(settings.hook_url, settings.token, settings.section.webhook_timeout_s)
    stack.callback(hook.close)
    return ConfiguredAlarms(store, settings, hook, mirror_s)


class AlarmManager:
    """Keeps the alarms of some links and kinds. `tell` gets events for operators; all are logged."""

    def __init__(
        self,
        store: Store,
        timings: Mapping[AlarmKind, AlarmTiming],
        quiet: Collection[QuietTime],
        tell: Callable[[AlarmEvent], None],
    ) -> None:
        self._store, self._timings, self._quiet = store, timings, tuple(quiet)
        self._tell = tell
        self._ids: dict[AlarmKey, AlarmRow] = {}
        self._unsaved: list[AlarmEvent] = []
        self._again_s = 0.0
        self._marks: Mapping[int, AlarmRow] = {}
        self.book: dict[AlarmKey, ActiveAlarm] = {}

    def leave(self, kind: AlarmKind, links: Collection[str]) -> None:
        """Leaves these alarms to another process without clearing them."""
        for key in [key for key in self.book if key.kind == kind and key.link in links]:
            del self.book[key]
            self._ids.pop(key, None)

    def load(self, links: Collection[str] | None, kinds: Collection[AlarmKind]) -> None:
        """Takes over the open alarms of these links, or of all."""
        for row in self._store.delay.alarms(open_only=True, limit=None):
            if (links is not None and row.link not in links) or row.kind not in kinds:
                continue
            key = AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group)
            if key in self.book:
                continue
            self._ids[key] = row
            self.book[key] = ActiveAlarm(key, row.raised_ms, row.sentence, row.raised_ms, row.reported_ms, row.reports)

    def move(self, by_ms: int) -> None:
        """Shifts all times after the clock was set: alarms keep their durations."""
        self.book = {key: shift_alarm_clock(one, by_ms) for key, one in self.book.items()}

    def judge(self, conditions: Iterable[AlertCondition], now_ms: int) -> list[AlarmEvent]:
        """Applies these conditions; returns the events, which are sent at once and saved when the store is writable."""
        quiet = is_quiet(self._quiet, now_ms)
        self.book, events = update_alarms(self.book, conditions, now_ms, self._timings, quiet=quiet)
        marked = self._hushed(events, now_ms)
        events = [event._replace(tell=event.tell and event.key not in marked) for event in events]
        for event in events:
            why = marked.get(event.key) or ("quiet time" if quiet else "not told by itself")
            hushed = "" if event.tell else f" ({why})"
            level = logging.INFO if event.happening is AlarmTransition.CLEARED else logging.ERROR
            fields = {"link": event.key.link, "topic": event.key.topic} if "->" in event.key.link else None
            log.log(level, f"alarm {event.happening}{hushed}: {describe_event(event)}", extra=fields)
            if event.tell:
                self._tell(event)
        self._unsaved += events
        if time.monotonic() >= self._again_s:
            self.save()
        return events

    def _hushed(self, events: Iterable[AlarmEvent], now_ms: int) -> Mapping[AlarmKey, str]:
        """Returns the alarms of which people want no message. While the store is away, by what they said before."""
        known = [(event, self._ids[event.key].id) for event in events if event.tell and event.key in self._ids]
        if known and time.monotonic() >= self._again_s:
            try:
                self._marks = {row.id: row for row in self._store.delay.alarms(open_only=True, limit=None)}
            except StoreError:
                self._again_s = time.monotonic() + STORE_RETRY_INTERVAL_S
        rows = ((event, self._marks.get(number)) for event, number in known)
        return {event.key: "hushed by a person" for event, row in rows if row and is_hushed(event, row, now_ms)}

    def save(self) -> None:
        """Writes the history. What cannot be written is kept for the next call."""
        while self._unsaved:
            try:
                self._keep(self._unsaved[0])
            except StoreError as error:
                log.warning(f"the history of alarms waits for the store: {error.message}")
                self._again_s = time.monotonic() + STORE_RETRY_INTERVAL_S
                return
            self._unsaved.pop(0)

    def refresh(self) -> None:
        """Updates the sentences of open alarms in the store.

        Two monitors may watch one cluster: an alarm closed by the other is raised again while the condition holds here.
        """
        stands = {row.id for row in self._store.delay.alarms(open_only=True, limit=None)} if self._ids else set()
        for key, one in self.book.items():
            row = self._ids.get(key)
            if row is None:
                continue
            if row.id not in stands and one.right_ms is None:
                again = replace(row, id=0, sentence=one.sentence, cleared_ms=None, **NO_MARKS)
                self._ids[key] = self._store.delay.raise_alarm(again)
            elif row.sentence != one.sentence:
                self._ids[key] = replace(row, sentence=one.sentence)
                self._store.delay.mark_alarm_reported(self._ids[key])

    def _keep(self, event: AlarmEvent) -> None:
        key = event.key
        row = self._ids.get(key)
        if row is None:
            told_ms = event.at_ms if event.tell else None
            new = AlarmRow(
                key.link, key.kind, key.topic, key.group, event.sentence, event.raised_ms, told_ms, int(event.tell)
            )
            row = self._ids[key] = self._store.delay.raise_alarm(new)
        elif event.happening is AlarmTransition.REPEATED and event.tell:
            row = replace(row, reported_ms=event.at_ms, reports=row.reports + 1, sentence=event.sentence)
            self._store.delay.mark_alarm_reported(row)
            self._ids[key] = row
        if event.happening is AlarmTransition.CLEARED:
            self._store.delay.clear_alarm(row.id, event.at_ms)
            del self._ids[key]


class ConfiguredAlarms(AlarmManager):
    """Alarms by settings that may change. `mirror_s` as in `build_alarm_timings`."""

    def __init__(self, store: Store, settings: DelaySettings, hook: Webhook, mirror_s: float) -> None:
        super().__init__(store, {}, (), hook.tell)
        self._hook, self._mirror_s = hook, mirror_s
        self._obey_times(settings.section)

    def obey(self, settings: DelaySettings) -> None:
        """Goes by these settings from now on. If the webhook's URL cannot be read here, the one before stays."""
        self._obey_times(settings.section)
        try:
            self._hook.aim(settings.hook_url, settings.token)
        except ConfigError as error:
            log.warning(f"alarms are sent where they were before: {error}")

    def _obey_times(self, section: DelaySection) -> None:
        self._timings = build_alarm_timings(section, mirror_s=self._mirror_s)
        self._quiet = tuple(parse_quiet(one) for one in section.quiet)
