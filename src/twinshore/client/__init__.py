"""Producers and consumers that follow their topics to another cluster, without a restart.

An application calls them as it calls the clients of confluent-kafka; each call goes to the client of the topic's home.
Homes are read from the clusters themselves. This package knows no store and no mirror, and ships alone as
`twinshore-client`.
"""

from __future__ import annotations

from twinshore.client.aio import AsyncFailoverConsumer, AsyncFailoverProducer
from twinshore.client.consumer import FailoverConsumer
from twinshore.client.paired_consumer import FailoverPairConsumer
from twinshore.client.producer import FailoverProducer

__all__ = [
    "AsyncFailoverConsumer",
    "AsyncFailoverProducer",
    "FailoverConsumer",
    "FailoverPairConsumer",
    "FailoverProducer",
]
