"""Assertions about errors by code and values, and about sentences by the values that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from twinshore.config.errors import CodedError


@contextmanager
def raises(kind: type[CodedError], code: str, **values: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block raises such an error with this code, and with these values among others."""
    with pytest.raises(kind) as raised:
        yield raised
    assert has_code(raised.value, code, **values), str(raised.value)


def has_code(error: Exception | None, code: str, **values: object) -> bool:
    """Whether this is an error with this code, and with these values among others."""
    return isinstance(error, CodedError) and (error.code, {**error.values, **values}) == (code, error.values)


def mentions(text: str, *values: object) -> bool:
    """Whether a line of the text has each of these values as a word of its own."""
    wanted = [re.compile(rf"(?<!\w){re.escape(str(value))}(?!\w)") for value in values]
    return any(all(one.search(line) for one in wanted) for line in text.splitlines())
