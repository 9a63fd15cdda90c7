"""Error classes. `hint`: what an operator can do; printed on its own line. `messages.json` has the texts by code.

A code is `package.what-is-wrong`, and its entry is the text, and mostly a hint. `{name}` is a value of the error. Codes
are public: programs compare them, so a code keeps its meaning.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import NamedTuple


class Message(NamedTuple):
    """What happened and where; and what to do."""

    text: str
    hint: str = ""


@cache
def messages() -> dict[str, Message]:
    """Each message by its code. The first error reads the file."""
    text = resources.files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    return {code: Message(*said) for code, said in json.loads(text).items()}


class TwinshoreError(Exception):
    """The root of all errors that Twinshore raises on purpose."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _restore, (type(self), self.__dict__)


def _restore(kind: type[TwinshoreError], fields: dict[str, object]) -> TwinshoreError:
    error = kind.__new__(kind)
    error.__dict__.update(fields)
    error.args = (error.message,)
    return error


class CodedError(TwinshoreError):
    """An error with a stable `code` and `values`. `config/messages.json` has the text and the hint of each code."""

    def __init__(self, code: str, *, hint: str = "", **values: object) -> None:
        known = messages().get(code)
        if known is None:  # A sentence that another program said, such as a file's parser.
            super().__init__(code, hint=hint)
        else:
            super().__init__(known.text.format_map(values), hint=hint or known.hint.format_map(values))
        self.code = code if known else ""
        self.values = values


class ConfigError(CodedError):
    """A wrong setting or argument. The message names the place and the nearest valid choice."""


class RefusedError(CodedError):
    """Refused because data would be lost or mixed. Nothing was changed."""


class UnsupportedError(RefusedError):
    """A valid case that this version does not support."""


class WireError(TwinshoreError):
    """Bytes that violate the protocol. `offset`: where in the buffer, -1 if unknown."""

    def __init__(self, message: str, *, offset: int = -1, hint: str = "") -> None:
        super().__init__(message if offset < 0 else f"{message} at byte {offset}", hint=hint)
        self.offset = offset

    def within(self, place: str) -> WireError:
        """The same error, prefixed with its place."""
        return type(self)(f"{place}: {self.message}", hint=self.hint)


class TooLargeError(WireError):
    """Possibly valid bytes that unpack to more than is allowed in memory."""


class KafkaError(TwinshoreError):
    """A cluster answered with an error, or not at all. `code` is Kafka's, 0 for network errors. `silent`: the cluster
    that did not answer in time. `cause`: the result of the last attempt.
    """

    silent = cause = ""

    def __init__(self, message: str, *, code: int = 0, retriable: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retriable = retriable


class StoreError(CodedError):
    """The store cannot be read or written."""


class StoreVersionError(StoreError):
    """The store's tables belong to another version, so waiting does not help."""
