"""Thousands of clients at one process: what each of them costs, and that it is given back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

import twinshore
from testkit.certificates import CertificateAuthority
from tests.proxy.served import proxy_before
from tests.scenarios.test_following_writers import until
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

CLIENTS, READING, BUSY = 5_000, 200, 100
MB_MAX, TLS_MB_MAX = 200.0, 700.0
PARTITIONS = 4
STANDS_S = 12.0


def fill(lab: LabCluster, topic: str) -> None:
    """What readers begin with is as large as consumers take at once."""
    producer = Producer(client_settings(lab.cluster))
    for number in range(1500 * PARTITIONS):
        producer.produce(topic, b"x" * 1000, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def held_mb(process: psutil.Process) -> float:
    """A page that it shares with others counts in part."""
    return float(process.memory_full_info().pss) / 1e6


class Crowd:
    """Clients in a process of their own."""

    def __init__(self, bootstrap: str, topic: str, ca_file: str) -> None:
        job: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic, "ca_file": ca_file, "every_s": 0.5}
        job |= {"idle": CLIENTS - READING - BUSY, "reading": READING, "busy": BUSY}
        command = [sys.executable, "-m", "testkit.crowd", json.dumps(job)]
        environment = {**os.environ, "PYTHONPATH": str(Path(twinshore.__path__[0]).parent)}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def says(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, f"the crowd has ended: {self._child.wait(10)}"
        found: dict[str, Any] = json.loads(line)
        return found

    def leaves(self) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return self.says()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextmanager
def crowd(*words: Any) -> Iterator[Crowd]:
    made = Crowd(*words)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.long
@pytest.mark.claim("proxy", "crowd", "5,000 connections to one process, some reading, some writing: under 200 MB")
def test_five_thousand_clients_take_less_than_two_hundred_megabytes(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    assert played(east, west, unique_topic, tmp_path) < MB_MAX


@pytest.mark.long
def test_of_tls_each_client_takes_a_record_s_buffer_and_what_openssl_keeps(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    authority = CertificateAuthority(tmp_path, "proxy")
    pair = authority.issue("proxy")
    more = f'certificate_file = "{pair.cert_file}"\nkey_file = "{pair.key_file}"\n'
    assert played(east, west, unique_topic, tmp_path, more, str(authority.ca_file)) < TLS_MB_MAX


def played(east: LabCluster, west: LabCluster, topic: str, folder: Path, more: str = "", ca_file: str = "") -> float:
    """The most that the process held while all were there, some seconds behind their coming."""
    east.create_topic(topic, partitions=PARTITIONS)
    fill(east, topic)
    with proxy_before(folder, east.cluster, west.cluster, more=more) as proxy:
        empty_mb = held_mb(proxy.process)
        with crowd(proxy.bootstrap, topic, ca_file) as clients:
            came = clients.says()
            at_once_mb, most_mb, until_s = held_mb(proxy.process), 0.0, time.monotonic() + STANDS_S
            time.sleep(2)
            while time.monotonic() < until_s:
                most_mb = max(most_mb, held_mb(proxy.process))
                time.sleep(1)
            assert proxy.metrics()["twinshore_proxy_connections"] == CLIENTS
            left = clients.leaves()
        assert came["clients"] == CLIENTS
        assert left["records"] > 0
        assert left["failed"] == 0
        until(lambda: proxy.metrics()["twinshore_proxy_connections"] == 0, 20, "all are gone")
    print(
        f"told: {CLIENTS:,} clients came in {came['seconds']:.0f} s, {READING} read and {BUSY} wrote:"
        f" {most_mb:.0f} MB of proportional set size, {at_once_mb:.0f} MB as the last had come,"
        f" {empty_mb:.0f} MB with none; {(most_mb - empty_mb) / CLIENTS * 1000:.1f} KB for each"
    )
    return most_mb
