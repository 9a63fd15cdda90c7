"""Logs of a process by Python's `logging`: text or JSON, outages of clusters, and lines that never block their writer.

An outage fails many jobs of many links. They report to one log, which writes the cause at once, soon afterwards the
waiting jobs, again later or when more wait, and finally that the cluster answers.

A thread of its own writes lines and raises nothing: a gone reader or full disk must neither end nor delay a thread that
replicates.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from twinshore.config.errors import KafkaError
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections.log import LogSettings
from twinshore.config.sentences import count_phrase, escape_line, join_names

log = logging.getLogger(__name__)
OUTAGE_GATHER_S = 15.0  # jobs give up at different times: the report waits for most of them
OUTAGE_LOG_AGAIN_S = 600.0
LATE_FAILURE_S = 20.0  # a job that began during the outage may fail so long after its end
NAMES_SHOWN_MAX = 5

LinkJob = tuple[str, str]  # a link, and what is not done for it


@dataclass(slots=True)
class _Outage:
    """A cluster's outage. `back_s`: when the cluster answered again; jobs still waiting are then no longer reported."""

    since_s: float
    tell_at_s: float
    waiting: set[LinkJob] = field(default_factory=set)
    told: set[LinkJob] = field(default_factory=set)
    told_s: float = -1e9
    back_s: float | None = None


class OutageLog:
    """Logs the outages that jobs of this process report. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._away: dict[str, _Outage] = {}

    def silent(self, cluster: str, link: str, what: str, cause: str, *, since_s: float = -1.0) -> None:
        """Reports that job `what` of the link failed, since the cluster is silent. `since_s`: since when on this log's
        clock, if known.
        """
        now_s = self._clock()
        with self._guard:
            outage = self._away.get(cluster)
            if outage is not None and outage.back_s is not None and now_s - outage.back_s >= LATE_FAILURE_S:
                outage = None
            said = ""
            if outage is None:
                outage = self._away[cluster] = _Outage(now_s, now_s + OUTAGE_GATHER_S)
                said = f"{cluster} does not answer: {cause}"
            if since_s >= 0 and outage.back_s is None:
                outage.since_s = min(outage.since_s, since_s)
            outage.waiting.add((link, what))
            if not said and outage.back_s is None and now_s >= outage.tell_at_s and _is_news(outage, now_s):
                said = _what_waits(cluster, outage, now_s)
                outage.told, outage.told_s, outage.tell_at_s = set(outage.waiting), now_s, now_s + OUTAGE_GATHER_S
        if said:
            log.warning(said, extra={"cluster": cluster})

    def answers(self, link: str, what: str, of: str = "") -> bool:
        """Reports that job `what` succeeded: on cluster `of`, or all. Returns whether the job had waited for a cluster,
        so the log needs no further line.
        """
        now_s, back, waited = self._clock(), [], False
        with self._guard:
            for cluster, outage in self._away.items():
                if (link, what) not in outage.waiting or of not in ("", cluster):
                    continue
                outage.waiting.discard((link, what))
                waited = True
                if outage.back_s is None:
                    outage.back_s = now_s
                    back.append((cluster, now_s - outage.since_s))
        for cluster, away_s in back:
            log.info(f"{cluster} answers again, after {away_s:.0f} s", extra={"cluster": cluster})
        return waited

    def forget(self, link: str) -> None:
        """Drops the jobs of a link that this process no longer runs."""
        with self._guard:
            for cluster, outage in list(self._away.items()):
                outage.waiting = {one for one in outage.waiting if one[0] != link}
                if not outage.waiting and outage.back_s is None:
                    del self._away[cluster]

    def has_reported(self, cluster: str) -> bool:
        """Whether a reported outage goes on, or ended less than `LATE_FAILURE_S` ago."""
        with self._guard:
            outage = self._away.get(cluster)
            return outage is not None and (outage.back_s is None or self._clock() - outage.back_s < LATE_FAILURE_S)


def _is_news(outage: _Outage, now_s: float) -> bool:
    return bool(outage.waiting - outage.told) or now_s - outage.told_s >= OUTAGE_LOG_AGAIN_S


def _what_waits(cluster: str, outage: _Outage, now_s: float) -> str:
    links = sorted({link for link, _ in outage.waiting})
    what = sorted({what for _, what in outage.waiting})
    wait = "waits" if len(links) == 1 else "wait"
    return (
        f"{cluster} has not answered for {now_s - outage.since_s:.0f} s: {count_phrase(len(links), 'link')} {wait}"
        f" ({join_names(links, NAMES_SHOWN_MAX)}), with {join_names(what, len(what))}"
    )


class LinkLogger(logging.LoggerAdapter[logging.Logger]):
    """Begins each line with the link, and adds it as a field."""

    def __init__(self, log: logging.Logger, link: str) -> None:
        super().__init__(log, {"link": link})
        self._link = link

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"{self._link}: {msg}", kwargs


class FailureLog:
    """Failures of one job of a link: outages go to the OutageLog, others through `RepeatFilter`."""

    def __init__(self, link: str, what: str, log: logging.Logger, outages: OutageLog) -> None:
        self._link, self._what, self._outages = link, what, outages
        self._repeat_filter = RepeatFilter(LinkLogger(log, link))

    def remark(self, sentence: str) -> None:
        """Logs what is no failure."""
        self._repeat_filter.say(sentence)

    def say(self, before: str, error: Exception) -> None:
        """Logs a failure. `before`: what failed, written before the colon."""
        if isinstance(error, KafkaError) and error.silent:
            self._outages.silent(error.silent, self._link, self._what, error.cause)
        else:
            self._repeat_filter.say(f"{before}: {describe_error(error)}")

    def well(self, says: str = "") -> None:
        waited = self._outages.answers(self._link, self._what)
        self._repeat_filter.well("" if waited else says)


ROOT_LOGGER = "twinshore"
LOG_FIELDS = ("link", "cluster", "topic", "partition")
QUEUED_LINES_MAX = 10_000
WRITE_RETRY_DELAY_S = 1.0
CLOSE_TIMEOUT_S = 2.0


class TextFormatter(logging.Formatter):
    """The time of day and the message."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.getMessage()}"


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, and those of `LOG_FIELDS` that the line is about."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: getattr(record, name, "") for name in LOG_FIELDS}
        return json.dumps(values | {name: value for name, value in fields.items() if value != ""})


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class LogWriter(logging.Handler):
    """Queues lines for a thread that writes them, to standard output if no descriptor is given. Failed writes are
    retried; too many lines drop the oldest, which the log reports later.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        super().__init__()
        self.setFormatter(TextFormatter())
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.put(self.format(record))
        except Exception:
            self.handleError(record)

    def put(self, text: str) -> None:
        """Queues a line as it is, but for unprintable characters."""
        line = f"{escape_line(text)}\n"
        with self._news:
            self._lines.append(line)
            if len(self._lines) > QUEUED_LINES_MAX:
                del self._lines[1]  # The first one is being written.
                self._dropped += 1
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, name="log", daemon=True)
                # Where the machine has no thread left, the lines wait and the next one tries again.
                with suppress(RuntimeError, MemoryError):
                    thread.start()
                    self._thread = thread
            self._news.notify_all()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits up to `CLOSE_TIMEOUT_S` for unwritten lines."""
        with self._news:
            self._news.wait_for(lambda: not self._lines, timeout=CLOSE_TIMEOUT_S)
        super().close()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: bool(self._lines))
                line, dropped = self._lines[0], self._dropped
            try:
                if dropped:
                    self._write(f"{self.format(_lost_lines(dropped))}\n")
                self._write(line)
            except (OSError, ValueError):
                time.sleep(WRITE_RETRY_DELAY_S)
                continue
            with self._news:
                self._dropped -= dropped
                self._lines.popleft()
                self._news.notify_all()

    def _write(self, text: str) -> None:
        """Bypasses Python's buffer, whose lock an endless write would hold at process exit."""
        rest = text.encode(errors="replace")
        try:
            descriptor = sys.stdout.fileno() if self._descriptor is None else self._descriptor
        except io.UnsupportedOperation:
            sys.stdout.write(text)  # Output is captured in memory.
            return
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _lost_lines(count: int) -> logging.LogRecord:
    text = f"the log could not be written: {count} lines are lost"
    return logging.makeLogRecord({"name": __name__, "levelname": "WARNING", "msg": text})


@contextmanager
def write_log(settings: LogSettings, formatter: logging.Formatter | None = None) -> Iterator[LogWriter]:
    """Within the block, writes the log lines of all modules to standard output, as the settings or `formatter` says."""
    root = logging.getLogger(ROOT_LOGGER)
    level, propagate = root.level, root.propagate
    with LogWriter() as writer:
        writer.setFormatter(formatter or FORMATTERS[settings.format]())
        root.addHandler(writer)
        root.setLevel(settings.level.upper())
        root.propagate = False
        try:
            yield writer
        finally:
            root.removeHandler(writer)
            root.setLevel(level)
            root.propagate = propagate
