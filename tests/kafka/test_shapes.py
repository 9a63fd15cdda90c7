"""Answers before kio reads them: whole ones pass as they are, unknown tags fall out, lies about counts are told."""

from __future__ import annotations

import dataclasses
import io
import random
import struct
import subprocess
import sys
import textwrap
import uuid
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from kio.schema.api_versions.v0 import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.api_versions.v3 import ApiVersionsResponse
from kio.schema.describe_log_dirs.v4 import DescribeLogDirsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v16 import FetchResponse
from kio.schema.list_groups.v5 import ListGroupsResponse
from kio.schema.list_offsets.v7 import ListOffsetsResponse
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.sasl_authenticate.v1 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from tests.kafka.peers import answer, peer, read_request
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.response_check import check_response

ANSWERS = (
    ApiVersionsResponse,
    ApiVersionsResponseV0,
    DescribeLogDirsResponse,
    FetchResponse,
    ListGroupsResponse,
    ListOffsetsResponse,
    MetadataResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
TOLD = (WireError, SerialError, LookupError, struct.error, ValueError, OverflowError)
SAMPLES: dict[str, Any] = {
    "string": "ab",
    "bytes": b"abc",
    "records": b"abcd",
    "bool": True,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(milliseconds=5),
    "timedelta_i64": timedelta(milliseconds=5),
    "uuid": uuid.UUID(int=7),
}


def sample(entity: type[Any]) -> Any:
    """One with two elements in each array."""
    return entity(**{field.name: _value(field.type, field.metadata) for field in dataclasses.fields(entity)})


def _value(kind: Any, metadata: Any) -> Any:
    if NoneType in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is tuple:
        return (_value(get_args(kind)[0], metadata),) * 2
    if dataclasses.is_dataclass(kind):
        return sample(kind)  # type: ignore[arg-type]
    return SAMPLES.get(metadata["kafka_type"], 5)


def encoded(entity: Any) -> memoryview:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


@pytest.mark.parametrize("kind", ANSWERS)
def test_whole_answers_pass_as_they_are_and_cut_ones_never(kind: type[Any]) -> None:
    whole = encoded(sample(kind))
    assert check_response(whole, kind) is whole
    for end in range(len(whole)):
        with pytest.raises((WireError, IndexError, struct.error)):
            check_response(whole[:end], kind)


def test_unknown_tags_fall_out_wherever_they_are_and_known_ones_stay() -> None:
    api = struct.pack(">hhh", 18, 0, 4)
    plain = b"\0\0\2" + api + b"\0" + bytes(4)
    strange = b"\0\0\2" + api + b"\1\x63\2ab" + bytes(4)
    known = b"\1" + bytes(7) + b"\5"  # the tag 1 of ApiVersions: an int64
    both = b"\3" + b"\1\x08" + bytes(7) + b"\5" + b"\x63\1\0" + b"\x64\0"
    assert bytes(check_response(memoryview(strange + both), ApiVersionsResponse)) == plain + b"\1\1\x08" + known[1:]
    read, _ = entity_reader(ApiVersionsResponse)(check_response(memoryview(strange + both), ApiVersionsResponse), 0)
    assert read.finalized_features_epoch == 5
    feature = b"\2f" + struct.pack(">hh", 1, 2)
    inside = b"\2" + feature + b"\1\x63\1\0"
    nested = plain + b"\1\0" + bytes([len(inside)]) + inside
    read, _ = entity_reader(ApiVersionsResponse)(check_response(memoryview(nested), ApiVersionsResponse), 0)
    assert [str(one.name) for one in read.supported_features] == ["f"]


def test_whatever_bytes_come_kio_reads_them_or_they_are_told() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    told = 0
    for _ in range(3000):
        kind = chance.choice(ANSWERS)
        data = bytearray(encoded(sample(kind)))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            entity_reader(kind)(check_response(memoryview(bytes(data)), kind), 0)
        except TOLD:
            told += 1
    assert 100 < told < 3000


@pytest.mark.parametrize(
    "body", [b"\0\0\xff\xff\xff\xff\x7f", b"\0\0\xff\xff\xff\xff\x0f", b"\0\0\x80\x80\x80\x80\x08"]
)
def test_a_count_beyond_all_memory_does_not_end_the_process(body: bytes) -> None:
    def lie(connection: Any) -> None:
        _, _, correlation_id = read_request(connection)
        answer(connection, correlation_id, body)

    script = textwrap.dedent("""
        import sys
        from twinshore.config.errors import KafkaError
        from twinshore.config.model import Security
        from twinshore.kafka.connection import open_connection
        try:
            open_connection(("127.0.0.1", int(sys.argv[1])), Security())
        except KafkaError as error:
            print(error)
            sys.exit(3)
    """)
    with peer(lie) as address:
        command = [sys.executable, "-c", script, str(address[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert "ApiVersions" in done.stdout
