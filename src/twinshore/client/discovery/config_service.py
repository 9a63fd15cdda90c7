"""Settings pushed to an application, and files kept for its next start.

`PushFile` reads a file, `PushQuery` asks a database over the application's connections; Apollo and Twinshore's own
server are in `client.discovery.http`. The last good push and the last known homes are kept in files, which only the
application's user can read: they may hold passwords.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaException
from crc32c import crc32c

from twinshore.client.core.pushes import ApplicationSettings, PushedSettings, read_pushed
from twinshore.client.sites import client_thread
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import PUSH_HEAD
from twinshore.config.private_files import private_opener
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import steady_s
from twinshore.routing.core.home_records import HomeConflict, HomeLog, HomeRecord, HomeState

log = logging.getLogger(__name__)


def save_last_push(path: Path, text: str) -> None:
    """Replace the file atomically. OSError where that fails."""
    part = path.with_name(f"{path.name}.part")
    data = text.encode()
    try:
        with open(part, "wb", opener=private_opener) as file:
            file.write(f"{PUSH_HEAD} {crc32c(data):08x}\n".encode() + data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def load_last_push(path: Path) -> str | None:
    """Returns the text; None where the file is missing or damaged."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return data.decode("utf-8", "replace") if head == f"{PUSH_HEAD} {crc32c(data):08x}".encode() else None


class RememberedHomes:
    """The file of last known homes, beside the spool or the last good push; thread-safe.

    A client that starts while the home is unavailable would otherwise use a home from before a forced switch. `path`:
    None for no file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._guard = path, threading.Lock()
        self._records = _read(path) if path else {}
        if strange := sorted(topic for topic, record in self._records.items() if record.newer):
            self._records = {topic: record for topic, record in self._records.items() if not record.newer}
            named = ", ".join(strange[:NAMED_MAX])
            log.warning(f"{path} is of a newer version: the homes of {named} are not remembered")

    def lines(self) -> dict[str, HomeRecord]:
        return dict(self._records)

    def keep(self, told: Mapping[str, HomeRecord | HomeConflict]) -> None:
        """Save settled records. A topic in a switch keeps the record from before."""
        if self._path is None:
            return
        with self._guard:
            records = {topic: record for topic, record in told.items() if isinstance(record, HomeRecord)}
            settled = {topic: record for topic, record in records.items() if record.state is HomeState.SETTLED}
            news = {topic: record for topic, record in settled.items() if record is not self._records.get(topic)}
            if not news:
                return
            self._records |= news
            try:
                save_last_push(self._path, "".join(_text(record) for record in self._records.values()))
            except OSError as error:
                log.warning(f"{self._path} cannot be written, so a restart does not know where topics are: {error}")


def _text(record: HomeRecord) -> str:
    key, value = record.line()
    return f"{key.decode()}\t{(value or b'').decode()}\n"


def _read(path: Path) -> dict[str, HomeRecord]:
    found = HomeLog()
    for line in (load_last_push(path) or "").splitlines():
        key, _, value = line.partition("\t")
        found.take(key.encode(), value.encode())
    return found.homes


FILE_POLL_INTERVAL_S = 0.5
NAMED_MAX = 5
QUERY_INTERVAL_S = 2.0


class PushSource(Protocol):
    """Where pushes come from. Any exception is temporary, and the source is asked again. `in_clear`: others on the
    network may change responses, so no settings are taken.
    """

    name: str
    in_clear: bool

    def news(self, stop: threading.Event) -> str | None:
        """Wait for a change. Returns the text, possibly unchanged; None after a while, or once `stop` is set."""
        ...


class PushQuery:
    """Calls `ask` every `every_s` for the text, for example one value in a database."""

    in_clear = False

    def __init__(self, ask: Callable[[], str], *, name: str = "database", every_s: float = QUERY_INTERVAL_S) -> None:
        self._ask, self.name, self._every_s = ask, name, every_s
        self._seen: str | None = None

    def news(self, stop: threading.Event) -> str | None:
        text = self._ask()
        if text == self._seen:
            stop.wait(self._every_s)
            return None
        self._seen = text
        return text


class PushFile(PushQuery):
    """Reads the text from a file twice a second. Best replaced by a rename."""

    def __init__(self, path: Path | str) -> None:
        read = partial(Path(path).read_text, encoding="utf-8")
        super().__init__(read, name=f"file {path}", every_s=FILE_POLL_INTERVAL_S)


FIRST_PUSH_TIMEOUT_S = 10.0
RETRY_DELAY_S = 1.0
UNAPPLIED_RETRY_S = 5.0


class Pushes:
    """The pushes of `source` for one client.

    `clusters`: the application's own settings, by cluster. `last_good`: file of the last valid push, for a start
    without `source`. `first_s`: how long a start waits. After `stop` the thread ends with its current request.
    """

    def __init__(
        self,
        source: PushSource,
        *,
        clusters: Mapping[str, Mapping[str, Any]] | None = None,
        last_good: Path | str | None = None,
        first_s: float = FIRST_PUSH_TIMEOUT_S,
    ) -> None:
        self._source, self._first_s, self._clusters = source, first_s, clusters or {}
        self._last_good = Path(last_good) if last_good else None
        self._shared: Mapping[str, Any] = {}
        self._topics: tuple[str, ...] = ()
        self._repeat_filter, self._taking = RepeatFilter(log), RepeatFilter(log)
        self._check: Callable[[PushedSettings], None] = lambda _: None
        self._told: Callable[[PushedSettings], None] = lambda _: None
        self._trouble = ""
        self._untaken, self._untaken_s = "", 0.0  # a push that `check` refused, and when
        self._now: PushedSettings | None = None
        self._heard, self._stopping = threading.Event(), threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        shared: Mapping[str, Any],
        topics: Iterable[str],
        told: Callable[[PushedSettings], None],
        check: Callable[[PushedSettings], None] = lambda _: None,
    ) -> PushedSettings:
        """Returns the first push, received or remembered; ConfigError where neither is valid. `told` is called from
        another thread with each later push. `check` raises where no client can be made of a push.
        """
        if self._thread is not None:
            raise ConfigError("client.pushes-in-use")
        self._shared, self._topics, self._check = shared, tuple(topics), check
        self._thread = client_thread("pushes", self._source.name, self._run)
        self._thread.start()
        self._heard.wait(self._first_s)
        with self._guard:
            found = self._now = self._now or self._before()
            if found is None:
                self._stopping.set()
                why = self._trouble or f"{self._source.name} has not answered for {self._first_s:g} s"
                raise ConfigError("client.no-push", cause=why)
            self._told = told
            return found

    @property
    def memory(self) -> Path | None:
        """The file for remembered homes, beside the last good push."""
        return self._last_good.with_name(f"{self._last_good.name}.homes") if self._last_good else None

    def stop(self) -> None:
        """Report no more pushes. Does not wait."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                text = self._source.news(self._stopping)
            except Exception as error:  # any exception of a database driver
                self._say(self._repeat_filter, f"{self._source.name} cannot be asked: {describe_error(error)}")
                self._heard.set()
                self._stopping.wait(RETRY_DELAY_S)
                continue
            self._repeat_filter.well()
            if text is None and self._untaken and steady_s() > self._untaken_s + UNAPPLIED_RETRY_S:
                text = self._untaken
            if text is not None:
                self._take(text)
                self._heard.set()

    def _take(self, text: str) -> None:
        self._untaken = ""
        try:
            pushed = self._read(text)
            # `check` may fail only for now, for example while certificate files are replaced.
            self._untaken, self._untaken_s = text, steady_s()
            self._check(pushed)
            self._untaken = ""
        except Exception as error:  # any fault: the next push may be valid
            why = error.args[0].str() if isinstance(error, KafkaException) else error
            self._say(self._taking, f"{self._source.name}: this push is not taken, and the one before stays: {why}")
            return
        self._taking.well()
        with self._guard:
            if self._stopping.is_set() or (self._now is not None and pushed.digest == self._now.digest):
                return
            self._now, self._trouble, told = pushed, "", self._told
        if self._last_good is not None:
            try:
                save_last_push(self._last_good, text)
            except OSError as error:
                sentence = f"{self._last_good} cannot be written, so a start without {self._source.name} would fail"
                self._say(self._taking, f"{sentence}: {error}")
        told(pushed)

    def _read(self, text: str) -> PushedSettings:
        own = ApplicationSettings(self._shared, self._clusters, in_clear=self._source.in_clear)
        return read_pushed(text, own, self._topics)

    def _before(self) -> PushedSettings | None:
        text = load_last_push(self._last_good) if self._last_good is not None else None
        if text is None:
            return None
        try:
            pushed = self._read(text)
            self._check(pushed)
        except Exception:
            return None  # the application has changed since
        why = self._trouble or f"{self._source.name} has not answered for {self._first_s:g} s"
        log.warning(f"{why}: the last valid push counts, in {self._last_good}")
        return pushed

    def _say(self, repeat_filter: RepeatFilter, sentence: str) -> None:
        self._trouble = sentence
        repeat_filter.say(sentence)
