"""Producers and consumers that follow their topics to another cluster, without a restart.

Nouns: site (a cluster as an application names it, with the settings of its clients), order (where a topic is written
and read now, or that it waits). What an application calls on a client of confluent-kafka enters; the same calls on the
client of the topic's home leave. Where topics are at home is read from the clusters themselves (`homes`); of stores,
mirrors and what a switch does nothing is known here. It ships alone, as `twinshore-client`.
"""

from __future__ import annotations

from twinshore.client.aio import AsyncHotConsumer, AsyncHotProducer
from twinshore.client.consumer import HotConsumer
from twinshore.client.paired_consumer import HotPairConsumer
from twinshore.client.producer import HotProducer

__all__ = ["AsyncHotConsumer", "AsyncHotProducer", "HotConsumer", "HotPairConsumer", "HotProducer"]
