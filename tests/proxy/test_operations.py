"""What stands in a proxy's way is said before anybody is let in; without a cluster that answers it waits."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.proxy.served import ProxyProcess
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.config.settings import Settings, parse_settings
from twinshore.lab.ports import free_port
from twinshore.proxy.operations.run import serve_proxy

pytestmark = pytest.mark.usefixtures("a_terminal")


def settings(text: str) -> Settings:
    return parse_settings(text, name="test", env={})


def test_there_must_be_a_cluster() -> None:
    with raises(ConfigError, "proxy.no-clusters"):
        serve_proxy(settings("[proxy]\n"))


def test_a_certificate_that_cannot_be_used_is_said_before_anybody_is_let_in(tmp_path: Path) -> None:
    east = f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n'
    with pytest.raises(ConfigError, match=r"ca_file nowhere\.pem"):
        serve_proxy(settings(f'{east}[clusters.east.security]\ntls = true\nca_file = "nowhere.pem"\n'))
    with raises(ConfigError, "proxy.certificate-unusable", certificate="nowhere.pem", key="nowhere.pem"):
        serve_proxy(settings(f'{east}[proxy]\ncertificate_file = "nowhere.pem"\nkey_file = "nowhere.pem"\n'))


def test_a_port_that_somebody_has_is_said_before_anything_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        text = f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n[proxy]\nport = {port}\n'
        text += '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n'
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be served"):
            serve_proxy(settings(text))


def test_without_a_cluster_that_answers_nobody_is_let_in_and_health_says_why(tmp_path: Path) -> None:
    nobody = Cluster("east", (f"127.0.0.1:{free_port()}",))
    proxy = ProxyProcess(tmp_path, [nobody])
    try:
        proxy.launch()
        until_s = time.monotonic() + 60
        while "its topics wait" not in proxy.said():
            assert time.monotonic() < until_s, proxy.said()
            time.sleep(0.05)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        code, found = proxy.health()
        assert (code, found["says"]) == (503, "no cluster answers")
        assert found["clusters"] == {"east": {"answers": False, "brokers": 0, "topics": 0}}
        assert proxy.end(signal.SIGHUP) == 0
        assert "there is no store" in proxy.said()
    finally:
        proxy.close()
