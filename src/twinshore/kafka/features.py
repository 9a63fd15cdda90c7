"""What a broker's program can do, and what its cluster works by: metadata.version, which rises with each release."""

from __future__ import annotations

from typing import Final, NamedTuple

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse

from twinshore import __version__
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import kafka_error

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_REPLICAS: Final = "eligible.leader.replicas.version"


class Features(NamedTuple):
    """`supports` is the highest metadata.version that the broker knows, `finalized` the one that its cluster works by;
    0 where it does not tell. `eligible`: the cluster elects eligible leader replicas (KIP-966)."""

    supports: int
    finalized: int
    eligible: bool = False


def ask_features(line: Connection, timeout_s: float) -> Features:
    """Of the broker at the other end."""
    request = ApiVersionsRequest(client_software_name="twinshore", client_software_version=__version__)
    answer = line.call(request, ApiVersionsResponse, timeout_s=timeout_s)
    if answer.error_code:
        raise kafka_error(int(answer.error_code), f"{line.place}: its versions")
    supports = [int(one.max_version) for one in answer.supported_features if one.name == METADATA_VERSION]
    finalized = [int(one.max_version_level) for one in answer.finalized_features if one.name == METADATA_VERSION]
    eligible = any(one.name == ELIGIBLE_REPLICAS and one.max_version_level > 0 for one in answer.finalized_features)
    return Features(max(supports, default=0), max(finalized, default=0), eligible)
