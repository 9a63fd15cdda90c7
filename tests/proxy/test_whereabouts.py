"""As which clusters a command sees those behind the proxies: as the proxies themselves see them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.settings import parse_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import ClusterMetadata
from twinshore.proxy.operations import reset_offsets
from twinshore.proxy.operations.reset_offsets import read_routing_table
from twinshore.routing.core.home_records import HomeRecord
from twinshore.state.store import open_store

MOVED = HomeRecord(topic=GROUPS_HOME, home="west", cluster_id="id-west", term=2)


@dataclass
class Told:
    """A cluster that answers; both say that groups have moved."""

    name: str

    def metadata(self) -> ClusterMetadata:
        return ClusterMetadata(f"id-{self.name}", 1, {}, {})


@pytest.mark.parametrize(("follows", "home"), [("true", "west"), ("false", "east")])
def test_who_does_not_follow_keeps_groups_on_the_first_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follows: str, home: str
) -> None:
    class Notes:
        def __init__(self, _: KafkaCluster) -> None:
            pass

        def read(self) -> dict[str, HomeRecord]:
            return {GROUPS_HOME: MOVED}

    class NoTwins(Notes):
        def read(self) -> frozenset[str]:  # type: ignore[override]
            return frozenset()

        def may_be(self) -> frozenset[str]:
            return frozenset()

    monkeypatch.setattr(reset_offsets, "HomesTopic", Notes)
    monkeypatch.setattr(reset_offsets, "TwinsTopic", NoTwins)
    settings = parse_settings(f"[proxy]\nfollows_switches = {follows}\n", name="test", env={})
    clusters = cast(dict[str, Any], {name: Told(name) for name in ("east", "west")})
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        seen, silent = read_routing_table(clusters, settings, store)
    assert (seen.group_home(), silent) == (home, {})
