"""A server of pushes answers whoever has a token, at once or when something changes, and goes on without its store."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit.databases import PostgresServer
from testkit.errors import raises
from tests.switch.config_service.served import PushProcess, request
from twinshore.client.discovery.http import PushServer
from twinshore.config.errors import ConfigError

pytestmark = pytest.mark.usefixtures("a_terminal")

APPS = "/v1/apps/shop/push"


def push(home: str) -> str:
    clusters = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("east", "west")}
    return json.dumps({"clusters": clusters, "home": home})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[PushProcess]:
    made = PushProcess(tmp_path, f"sqlite:///{tmp_path}/store.db")
    yield made
    made.close()


def told(served: PushProcess, folder: Path, home: str) -> str:
    file = folder / "shop.json"
    file.write_text(push(home))
    done = served.command("set", "shop", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_who_waits_hears_at_once_and_who_has_no_token_nothing(served: PushProcess, tmp_path: Path) -> None:
    token = served.command("token", "shop").stdout.strip()
    other = served.command("token", "bills").stdout.strip()
    served.start()
    url = served.address + APPS
    assert request(url)[0] == request(url, "wrong")[0] == 401
    assert request(url, other)[0] == 403
    assert request(url, token)[0] == 404
    assert "east at east:9092" in told(served, tmp_path, "east")
    while (found := request(url, token))[0] == 404:
        time.sleep(0.05)
    assert found[:2] == (200, push("east"))
    tag = {"If-None-Match": found[2]}
    assert request(f"{url}?wait_s=0.2", token, headers=tag)[0] == 304
    assert request(f"{url}?wait_s=soon", token, headers=tag)[0] == 400
    with ThreadPoolExecutor(50) as pool:
        waiting = [pool.submit(request, f"{url}?wait_s=50", token, headers=tag) for _ in range(50)]
        while json.loads(request(f"{served.address}/health")[1])["waiting"] < len(waiting):
            time.sleep(0.05)
        told(served, tmp_path, "west")
        began = time.monotonic()
        assert {one.result() for one in waiting} == {request(url, token)}
        assert time.monotonic() - began < 2, "they hear of it, and do not wait for their time to run out"
    assert "twinshore_push_answers_total" in request(f"{served.address}/metrics")[1]

    (row,) = [one for one in json.loads(served.command("tokens", "--json").stdout) if one["app"] == "shop"]
    assert token not in served.command("tokens").stdout
    assert served.command("revoke", row["token"], "--dry-run").returncode == 0
    assert request(url, token)[0] == 200
    assert served.command("revoke", row["token"]).returncode == 0
    until_s = time.monotonic() + 10
    while request(url, token)[0] != 401:
        assert time.monotonic() < until_s
    assert served.end(signal.SIGHUP) == 0
    assert token not in served.said()


def test_who_may_push_does_so_and_replaces_only_what_was_seen(served: PushProcess) -> None:
    asks = served.command("token", "shop").stdout.strip()
    pushes = served.command("token", "shop", "--may-push").stdout.strip()
    served.start()
    url = served.address + APPS

    def put(token: str, text: str, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(url, token, method="PUT", body=text.encode(), headers=named)[:2]

    assert put(asks, push("east"))[0] == 403
    assert put(pushes, '{"clusters": {')[0] == 400
    secret = push("east").replace('"east:9092"', '"east:9092", "sasl.password": "hush"')
    code, said = put(pushes, secret)
    assert (code, "hush" in said) == (400, False)
    assert put(pushes, " " * (5 << 20))[0] == 413
    assert put(pushes, push("east"), If_Match='"1-abc"')[0] == 412
    assert put(pushes, push("east"))[0] == 200
    tag = request(url, asks)[2]
    assert put(pushes, push("west"), If_Match=tag)[0] == 200
    assert request(url, asks)[1] == push("west"), "what was pushed is served at once"
    assert put(pushes, push("east"), If_Match=tag)[0] == 412, "somebody has pushed meanwhile"
    assert json.loads(served.command("show", "shop", "--json").stdout)["revision"] == 2
    assert served.command("remove", "shop").returncode == 0
    assert served.command("remove", "shop").returncode == 2
    assert "none" in served.command("list").stdout


def test_it_tells_what_it_knew_while_its_store_is_away(tmp_path: Path) -> None:
    with PostgresServer() as database:
        served = PushProcess(tmp_path, database.new_database())
        try:
            token = served.command("token", "shop").stdout.strip()
            told(served, tmp_path, "east")
            served.start()
            os.kill(database.pid, signal.SIGKILL)
            until_s = time.monotonic() + 60
            while "clients are told what was known before" not in served.said():
                assert time.monotonic() < until_s, served.said()
                assert request(served.address + APPS, token)[:2] == (200, push("east"))
            assert request(served.address + APPS, token)[:2] == (200, push("east"))
            assert served.end() == 0
        finally:
            served.close()


def test_a_client_hears_of_each_change_and_keeps_its_own_when_refused(served: PushProcess, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(served.command("token", "shop").stdout)
    told(served, tmp_path, "east")
    served.start()
    source, stop = PushServer(served.address, "shop", token_file=secret), threading.Event()
    assert source.news(stop) == push("east")
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(source.news, stop)
        told(served, tmp_path, "west")
        assert later.result(20) == push("west")
    with pytest.raises(ConfigError, match="403: the token is for another application"):
        PushServer(served.address, "bills", token=secret.read_text().strip()).news(stop)
    with pytest.raises(ConfigError, match="401"):
        PushServer(served.address, "shop", token="wrong").news(stop)
    with raises(ConfigError, "client.url-invalid"):
        PushServer("push:9193", "shop", token="x")
    with pytest.raises(ConfigError, match="either token"):
        PushServer(served.address, "shop")
