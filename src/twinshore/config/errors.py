"""One root, few kinds. `hint` says what an operator can do; it is printed on a separate line."""

from __future__ import annotations


class TwinshoreError(Exception):
    """Everything Twinshore raises on purpose."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, tuple[type, str, str]]:
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[TwinshoreError], message: str, hint: str) -> TwinshoreError:
    error = kind.__new__(kind)
    TwinshoreError.__init__(error, message, hint=hint)
    return error


class ConfigError(TwinshoreError):
    """A setting or an argument is wrong; names the place and the nearest right thing."""


class RefusedError(TwinshoreError):
    """Twinshore will not do this, because it would lose or mix data. Nothing was touched."""


class UnsupportedError(RefusedError):
    """A real case that this version does not handle yet."""


class WireError(TwinshoreError):
    """Bytes that are not what the protocol says. `offset` is where in the buffer, -1 if unknown."""

    def __init__(self, message: str, *, offset: int = -1, hint: str = "") -> None:
        super().__init__(message if offset < 0 else f"{message} at byte {offset}", hint=hint)
        self.offset = offset

    def within(self, place: str) -> WireError:
        """The same error, with the place that it concerns."""
        return type(self)(f"{place}: {self.message}", hint=self.hint)


class TooLargeError(WireError):
    """Bytes that may be well, but unpack to more than is taken into memory."""


class KafkaError(TwinshoreError):
    """A cluster answered with an error, or not at all. `code` is Kafka's, 0 for the network's own. `silent`: the
    cluster that did not answer for as long as it was waited for; `cause`: what came of the last attempt."""

    silent = cause = ""

    def __init__(self, message: str, *, code: int = 0, retriable: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retriable = retriable


class StoreError(TwinshoreError):
    """The store cannot be read or written."""


class StoreVersionError(StoreError):
    """Its tables are another version's: waiting does not help."""
