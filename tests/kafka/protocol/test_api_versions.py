"""ApiVersions in both roles against kio, in every version."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.handshake import (
    UNSUPPORTED_VERSION,
    ApiVersionRange,
    ApiVersionsResponse,
    ClientSoftware,
    FeatureRange,
    encode_api_versions,
    encode_api_versions_request,
    parse_api_versions,
    read_api_versions_request,
)

VERSIONS = range(5)
I16 = st.integers(0, 32767)
NAMES = st.from_regex(r"[A-Za-z0-9]{1,20}", fullmatch=True)
FEATURES = st.lists(st.builds(FeatureRange, NAMES, I16, I16), max_size=3).map(tuple)
ANSWERS = st.builds(
    ApiVersionsResponse,
    st.sampled_from([0, 7, 29, 58]),
    st.lists(st.builds(ApiVersionRange, I16, I16, I16), max_size=90).map(tuple),
    st.integers(0, 2**31 - 1),
    FEATURES,
    st.integers(-1, 2**63 - 1),
    FEATURES,
    st.booleans(),
)


def kios(version: int, side: str) -> Any:
    module = importlib.import_module(f"kio.schema.api_versions.v{version}.{side}")
    return getattr(module, f"ApiVersions{side.capitalize()}")


def by_kio(kind: Any, data: bytes) -> Any:
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return entity


def from_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def seen_in(version: int, answer: ApiVersionsResponse) -> ApiVersionsResponse:
    """What that version can say of it."""
    if version >= 3:
        return answer
    return ApiVersionsResponse(answer.error, answer.offers, answer.throttle_ms if version else 0)


@pytest.mark.parametrize("version", VERSIONS)
@given(answer=ANSWERS)
def test_an_answer_is_read_as_it_was_written(version: int, answer: ApiVersionsResponse) -> None:
    data = encode_api_versions(version, answer)
    assert parse_api_versions(memoryview(data), 0, version) == seen_in(version, answer)
    theirs = by_kio(kios(version, "response"), data)
    assert from_kio(theirs) == data, "kio writes the same bytes"
    assert [(one.api_key, one.min_version, one.max_version) for one in theirs.api_keys] == list(answer.offers)
    if version >= 3:
        levels = [(one.name, one.min_version_level, one.max_version_level) for one in theirs.finalized_features]
        assert levels == list(answer.finalized)
        supported = [(one.name, one.min_version, one.max_version) for one in theirs.supported_features]
        assert supported == list(answer.features)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_cut_anywhere_is_a_wire_error(version: int) -> None:
    features = [FeatureRange("metadata.version", 1, 25), FeatureRange("transaction.version", 0, 2)]
    data = encode_api_versions(
        version,
        ApiVersionsResponse(0, [ApiVersionRange(0, 0, 13), ApiVersionRange(1, 4, 18)], 5, features, 9, features, True),
    )
    for end in range(len(data)):
        with pytest.raises(WireError):
            parse_api_versions(memoryview(data)[:end], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_read_as_clients_write_it(version: int) -> None:
    software = ClientSoftware("librdkafka", "2.12.0") if version >= 3 else None
    fields = {"client_software_name": software.name, "client_software_version": software.version} if software else {}
    data = from_kio(kios(version, "request")(**fields))
    assert read_api_versions_request(memoryview(data), 0, version) == software
    assert encode_api_versions_request(version, software or ClientSoftware("", "")) == data
    for end in range(len(data)):
        with pytest.raises(WireError):
            read_api_versions_request(memoryview(data)[:end], 0, version)


def test_a_version_that_a_broker_does_not_know_is_answered_in_the_first() -> None:
    data = encode_api_versions(0, ApiVersionsResponse(UNSUPPORTED_VERSION, [ApiVersionRange(18, 0, 4)]))
    for version in VERSIONS:
        assert parse_api_versions(memoryview(data), 0, version).offers == (ApiVersionRange(18, 0, 4),)
    with pytest.raises(WireError, match="ApiVersions v5 is not spoken here"):
        encode_api_versions(5, ApiVersionsResponse(0, []))
