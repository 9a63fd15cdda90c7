"""Both clusters of a link: which is which, and that nothing is dialled before somebody asks."""

from __future__ import annotations

import pytest

from twinshore.config.errors import KafkaError
from twinshore.config.settings import parse_settings
from twinshore.runtime.endpoints import LinkClients

SETTINGS = parse_settings(
    """
    [clusters.east]
    bootstrap = ["127.0.0.1:1"]
    [clusters.west]
    bootstrap = ["127.0.0.1:2"]
    [links."east->west"]
    """,
    name="settings",
    env={},
)


def test_each_end_is_the_links_own_and_is_dialled_when_it_is_asked() -> None:
    with LinkClients(SETTINGS.link("east->west"), SETTINGS, patience_s=1.0, call_s=0.5) as ends:
        assert (ends.source.name, ends.target.name) == ("east", "west")
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
            ends.source.metadata(None)
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:2"):
            ends.target.metadata(None)
