"""Names of Kafka's APIs, and which of them carry tags."""

from __future__ import annotations

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
SASL_HANDSHAKE = 17
API_VERSIONS = 18
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
WRITE_TXN_MARKERS = 27
SASL_AUTHENTICATE = 36
DESCRIBE_PRODUCERS = 61
DESCRIBE_TRANSACTIONS = 65

# The first version of each API whose headers carry tags, for the APIs that are sent as raw bytes.
_FLEXIBLE_SINCE = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 6,
    METADATA: 9,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 6,
    INIT_PRODUCER_ID: 2,
    OFFSET_FOR_LEADER_EPOCH: 4,
    WRITE_TXN_MARKERS: 1,
    DESCRIBE_PRODUCERS: 0,
    DESCRIBE_TRANSACTIONS: 0,
}


def api_name(api_key: int) -> str:
    """`Metadata` for 3."""
    from kio.schema.index import api_key_map  # large, and only errors need it

    return "".join(word.capitalize() for word in api_key_map.get(api_key, f"api_{api_key}").split("_"))


def is_flexible(api_key: int, version: int) -> bool:
    """True when the headers of this request and its response carry tags."""
    since = _FLEXIBLE_SINCE.get(api_key)
    if since is None:
        raise ValueError(f"{api_name(api_key)} is not among the APIs sent as raw bytes")
    return version >= since
