"""Whether Twinshore may delete a topic, and the one request by which it does.

`DeletionGuard` decides for one link, of whichever kind the deletion is: by a policy, by an operator's approval, for a
fail-back or for a rebuild.

`SafetyPolicy` is [safety] of the settings file as it is now. The file can forbid at once, but permits nothing: what was
forbidden at the start or since holds until the process ends, so a half-written file takes nothing back. While the file
is unreadable, nothing is deleted or cut off.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.sections.safety import SafetySettings
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.links import effective_links
from twinshore.replication.sync.core.lifecycle import KEEP_TWIN, find_objection
from twinshore.runtime.logging import LinkLogger
from twinshore.state.store import Store

log = logging.getLogger(__name__)

NEVER_DELETE_REASON = "[safety] never_delete is set"
READ_TIMEOUT_S = 1.0


class SafetyPolicy:
    """[safety] as it is now, for one link and any thread. Logs changes. Without a file, or after its removal, the last
    known state holds, even an unreadable one.
    """

    def __init__(self, settings: Settings, link: str) -> None:
        self._file, self._known, self._log = settings.file, settings.safety, LinkLogger(log, link)
        self._troubles = RepeatFilter(self._log)
        self._guard = threading.Lock()
        self._reader: threading.Thread | None = None
        self._text: str | None = None
        self._unread = ""

    @property
    def known(self) -> SafetySettings:
        """The last known settings; reads nothing."""
        return self._known

    @property
    def never_cut(self) -> bool:
        """Whether no record may be cut off, by the last read."""
        return self._known.never_delete or bool(self._unread)

    def against(self) -> str:
        """Reads the file, and returns why nothing may be deleted or cut off, or ""."""
        with self._guard:
            if self._file is not None:
                self._read(self._file)
            return NEVER_DELETE_REASON if self._known.never_delete else self._unread

    def _read(self, file: Path) -> None:
        try:
            text = self._text_of(file)
            if not text.strip():
                # half written: no mirror runs by an empty file
                raise ConfigError("replication.settings-empty", file=file.name)
            if text != self._text:
                self._hear(parse_settings(text, name=str(file), env=os.environ).safety)
        except FileNotFoundError:
            return
        except Exception as error:  # in any case, what the file forbids is unknown
            self._text = None
            self._unread = f"the settings file {file} cannot be understood, so what [safety] forbids is unknown"
            why = error.message if isinstance(error, ConfigError) else describe_error(error)
            self._troubles.say(f"nothing is deleted or cut off now: {self._unread}: {why}")
        else:
            self._text = text
            self._unread = ""
            self._troubles.well("the settings file is understood again")

    def _text_of(self, file: Path) -> str:
        """Reads in a separate thread, one at a time, as the file system may hang."""
        found: list[str | Exception] = []

        def read() -> None:
            try:
                found.append(file.read_text(encoding="utf-8"))
            except Exception as error:
                found.append(error)

        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=read, name="settings file", daemon=True)
            self._reader.start()
            self._reader.join(READ_TIMEOUT_S)
        if not found:
            raise TimeoutError(f"its file system does not answer within {READ_TIMEOUT_S:g} s")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _hear(self, now: SafetySettings) -> None:
        known = self._known
        never = known.never_delete or now.never_delete
        most = min(known.deletions_at_once_max, now.deletions_at_once_max)
        self._known = SafetySettings(never_delete=never, deletions_at_once_max=most)
        if self._known.never_delete and not known.never_delete:
            self._log.info("[safety] never_delete is set from now on: no twin is deleted, no record cut off")


class DeletionForbiddenError(RefusedError):
    """The topic must not be deleted now. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class DeletionGuard:
    """Deletions of topics on one link's target. `links`: all in the settings. `holds_lease`: whether this process holds
    the lease under which the deletion was decided.
    """

    link: Link
    links: Sequence[Link]
    store: Store
    safety: SafetyPolicy
    holds_lease: Callable[[], bool]

    def objections(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns why these topics' twins must not be deleted, by present settings and operators' orders, or ""."""
        topics = list(topics)
        if not topics:
            return {}
        now = effective_links(self.links, self.store)[self.link.name]
        kept = {row.subject for row in self.store.link_states.of(self.link.name, KEEP_TWIN)}
        never = self.safety.against()
        return {
            topic: find_objection(now.link, topic, never=never, kept=kept, troubles=now.troubles) for topic in topics
        }

    def refusal(self, topics: Iterable[str]) -> DeletionForbiddenError | None:
        """Returns the first of these objections, if any."""
        return next((_forbidden(topic, why) for topic, why in self.objections(topics).items() if why), None)

    def delete(self, target: KafkaCluster, topic: str, topic_id: str) -> None:
        """Deletes the twin with this id, and no other topic of its name. No error if the twin is gone. Raises
        DeletionForbiddenError if, right before a request, anything objects or the lease is lost.
        """

        def allow() -> None:
            if refused := self.refusal([topic]):
                raise refused
            if not self.holds_lease():
                raise _forbidden(topic, "this process has lost its lease")

        try:
            target.admin.delete_topic(self.link.twin_of(topic), topic_id=bytes.fromhex(topic_id), allow=allow)
        except KafkaError as error:
            if error.code not in (Code.unknown_topic_or_partition, Code.unknown_topic_id):
                raise


def _forbidden(topic: str, why: str) -> DeletionForbiddenError:
    return DeletionForbiddenError("replication.twin-not-deleted", topic=topic, why=why)


def deletion_guard(
    link: Link, settings: Settings, store: Store, holds_lease: Callable[[], bool] = lambda: False
) -> DeletionGuard:
    """Returns a guard for a command. Without a lease it tells objections, and deletes nothing."""
    return DeletionGuard(link, settings.links, store, SafetyPolicy(settings, link.name), holds_lease)
