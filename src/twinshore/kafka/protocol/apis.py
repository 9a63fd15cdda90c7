"""The table of Kafka's APIs: keys, names, flexible versions, handwritten versions."""

from __future__ import annotations

import sys
from functools import cache
from typing import Final, NamedTuple

from kio.schema.index import api_key_map

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65

# Lowest and highest version of requests encoded here, not by kio.
HANDWRITTEN_VERSIONS: Final = {
    PRODUCE: (9, 13),
    FETCH: (13, 13),
    LIST_OFFSETS: (7, 7),
    OFFSET_COMMIT: (8, 8),
    OFFSET_FETCH: (8, 8),
    WRITE_TXN_MARKERS: (1, 1),
    DESCRIBE_TRANSACTIONS: (0, 0),
}

# Size limits of responses. A fetch returns its first batch whole, up to the topic's limit.
RESPONSE_BYTES_MAX: Final = 100 << 20
FETCH_RESPONSE_BYTES_MAX: Final = 1 << 30

# The first version whose headers carry tags: 0, unless the API is older than tags.
_FIRST_FLEXIBLE: Final = {
    **dict.fromkeys((27, 44, 48, 49, 53, 54), 1),
    **dict.fromkeys((21, 22, *range(29, 32), *range(33, 44), 56), 2),
    **dict.fromkeys((10, 16, 18, 24, 25, 26, 28), 3),
    **dict.fromkeys((12, 13, 14, 20, 23, 32), 4),
    **dict.fromkeys((15, 19), 5),
    **dict.fromkeys((2, 9, 11), 6),
    **dict.fromkeys((0, 3), 9),
    **dict.fromkeys((17, 47), sys.maxsize),
    1: 12,
    8: 8,
}


def api_name(key: int) -> str:
    """Returns `Metadata` for 3."""
    return "".join(map(str.capitalize, api_key_map[key].split("_"))) if key in api_key_map else f"Api{key}"


def tags_in_request(key: int, version: int) -> bool:
    """Whether the request header has tags. An API unknown here is new enough."""
    return version >= _FIRST_FLEXIBLE.get(key, 0)


def tags_in_response(key: int, version: int) -> bool:
    """Whether the response header has tags. ApiVersions never has: the client knows no version yet."""
    return key != API_VERSIONS and tags_in_request(key, version)


def response_bytes_max(key: int) -> int:
    return FETCH_RESPONSE_BYTES_MAX if key == FETCH else RESPONSE_BYTES_MAX


class ApiFormat(NamedTuple):
    key: int
    version: int
    tags_in_request: bool
    tags_in_response: bool
    response_bytes_max: int


@cache
def api_format(key: int, version: int) -> ApiFormat:
    tags = tags_in_request(key, version), tags_in_response(key, version)
    return ApiFormat(key, version, *tags, response_bytes_max(key))
