"""[safety] as the settings file has it at this moment: a mirror that runs hears what must not be deleted.

A file forbids at once and allows nothing: what a mirror was started with, or has heard since, holds until it ends. So a
file that is half written takes back nothing; and while nobody understands it, nothing is deleted or cut off.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from twinshore.fleet import ConfigError
from twinshore.fleet.once import Once, in_words
from twinshore.fleet.settings import Settings, parse_settings
from twinshore.fleet.settings.sections.safety import SafetySettings

NEVER = "[safety] never_delete is set"
READ_S = 1.0


class SafetyNow:
    """Any thread may ask. `log` hears what changed. Where the settings came from no file, or it is gone, what was known
    last holds, also that nobody understood it."""

    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        self._file, self._known, self._log = settings.file, settings.safety, log
        self._troubles = Once(log)
        self._guard = threading.Lock()
        self._reader: threading.Thread | None = None
        self._text: str | None = None
        self._unread = ""

    @property
    def known(self) -> SafetySettings:
        """As it was heard last: nothing is read for it."""
        return self._known

    @property
    def never_cut(self) -> bool:
        """Whether no record may be cut off, by what was read last."""
        return self._known.never_delete or bool(self._unread)

    def against(self) -> str:
        """Why nothing may be deleted or cut off, by a file that is read for this answer; empty where it may."""
        with self._guard:
            if self._file is not None:
                self._read(self._file)
            return NEVER if self._known.never_delete else self._unread

    def _read(self, file: Path) -> None:
        try:
            text = self._text_of(file)
            if not text.strip():
                raise ConfigError("it is empty")  # half written: a mirror runs by no such file
            if text != self._text:
                self._hear(parse_settings(text, name=str(file), env=os.environ).safety)
        except FileNotFoundError:
            return
        except Exception as error:  # whatever it is, what the file forbids is not known
            self._text = None
            self._unread = f"the settings file {file} cannot be understood, so nobody knows what [safety] forbids"
            why = error.message if isinstance(error, ConfigError) else in_words(error)
            self._troubles.say(f"nothing is deleted or cut off now: {self._unread}: {why}")
        else:
            self._text = text
            self._unread = ""
            self._troubles.well("the settings file is understood again")

    def _text_of(self, file: Path) -> str:
        """A separate thread reads: where the file system hangs, it alone does, and there is never a second one."""
        found: list[str | Exception] = []

        def read() -> None:
            try:
                found.append(file.read_text(encoding="utf-8"))
            except Exception as error:
                found.append(error)

        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=read, name="settings file", daemon=True)
            self._reader.start()
            self._reader.join(READ_S)
        if not found:
            raise TimeoutError(f"its file system does not answer within {READ_S:g} s")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _hear(self, now: SafetySettings) -> None:
        """The stricter of both counts."""
        known = self._known
        self._known = SafetySettings(
            never_delete=known.never_delete or now.never_delete,
            deletions_at_once_max=min(known.deletions_at_once_max, now.deletions_at_once_max),
        )
        if self._known.never_delete and not known.never_delete:
            self._log("[safety] never_delete is set from now on: no twin is deleted, no record cut off")
