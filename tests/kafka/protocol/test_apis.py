"""The table of APIs against the schemas that kio was made from."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from kio.schema import index
from kio.schema.response_header.v1.header import ResponseHeader as HeaderWithTags

from twinshore.kafka.protocol.apis import HANDWRITTEN_VERSIONS, api_name, tags_in_request, tags_in_response


def versions(key: int) -> list[int]:
    module = importlib.import_module(f"kio.schema.{index.api_key_map[key]}")
    return sorted(int(one.name[1:]) for one in pkgutil.iter_modules(module.__path__) if one.name[1:].isdecimal())


def schema(key: int, version: int, side: str) -> Any:
    places = index.schema_name_map[index.api_key_map[key]][version]
    (place,) = [place for kind, place in places.items() if kind.name == side]
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("key", index.api_key_map)
def test_names_and_headers_are_those_of_the_protocol(key: int) -> None:
    for version in versions(key):
        request, answer = (schema(key, version, side) for side in ("request", "response"))
        assert api_name(key) == request.__name__.removesuffix("Request")
        assert tags_in_request(key, version) == request.__flexible__, version
        assert tags_in_response(key, version) == (answer.__header_schema__ is HeaderWithTags), version


def test_what_is_spoken_exists() -> None:
    for key, (lowest, highest) in HANDWRITTEN_VERSIONS.items():
        assert set(range(lowest, highest + 1)) <= set(versions(key)), api_name(key)


def test_an_api_of_the_future_has_a_name_and_tags() -> None:
    assert (api_name(999), tags_in_request(999, 0), tags_in_response(999, 0)) == ("Api999", True, True)
