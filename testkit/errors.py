"""Assertions about errors by code and values."""

from __future__ import annotations

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
    error = raised.value
    assert (error.code, {**error.values, **values}) == (code, error.values), str(error)
