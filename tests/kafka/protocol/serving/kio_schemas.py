"""Kio's reading and writing of any message: its schemas are generated from Kafka's own."""

from __future__ import annotations

import importlib
import io
from typing import Any

from kio.serial import entity_reader, entity_writer


def schema(api: str, version: int, side: str) -> Any:
    """`api` as in `produce`, `side` request or response."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    name = "".join(word.capitalize() for word in api.split("_"))
    return getattr(module, f"{name}{side.capitalize()}")


def by_kio(api: str, version: int, side: str, data: bytes) -> Any:
    """The message, of which nothing is left over; kio writes the same bytes."""
    kind = schema(api, version, side)
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, entity)
    assert buffer.getvalue() == data
    return entity
