"""A push server is believed as far as its answer is whole, its own, and not older than what was heard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.client.core.pushes import PushTag, digest_of, read_tag
from twinshore.client.discovery import http
from twinshore.client.discovery.http import PushServer
from twinshore.config.errors import ConfigError

Answer = tuple[int, dict[str, str], bytes]


class Lying:
    """A server that answers as it is told; `asked` has the headers of what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, str]] = []
        lying = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                lying.asked.append(dict(self.headers.items()))
                code, headers, body = lying.answers.pop(0)
                self.send_response(code)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def says(self, text: str, revision: int, *, cut: int = 0) -> None:
        """`cut`: how many bytes of it are missing."""
        body = text.encode()
        tag = str(PushTag(revision, digest_of(text)))
        headers = {"ETag": tag, "Content-Length": str(len(body)), "Connection": "close"}
        self.answers.append((200, headers, body[: len(body) - cut]))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def lying() -> Iterator[Lying]:
    made = Lying()
    yield made
    made.close()


@pytest.fixture
def source(lying: Lying, monkeypatch: pytest.MonkeyPatch) -> PushServer:
    monkeypatch.setattr(http, "RETRY_DELAY_S", 0.01)
    return PushServer(lying.address, "shop", token="abc\n")


GO_ON = threading.Event()


def test_an_answer_that_is_cut_off_is_asked_for_again(lying: Lying, source: PushServer) -> None:
    lying.says("north", 1, cut=2)
    with raises(ConfigError, "client.push-cut-off"):
        source.news(GO_ON)
    lying.says("north", 1)
    assert source.news(GO_ON) == "north"
    assert "If-None-Match" not in lying.asked[1], "it has not seen the one that was cut off"


def test_a_server_that_is_behind_takes_nobody_back(
    lying: Lying, source: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying.says("west", 2)
    assert source.news(GO_ON) == "west"
    for _ in range(3):
        lying.says("east", 1)
        assert source.news(GO_ON) is None
    assert read_tag(lying.asked[-1]["If-None-Match"]) == PushTag(2, digest_of("west"))
    lying.says("north", 3)
    assert source.news(GO_ON) == "north"
    # A store that was put back to an older state stays so: it is believed in the end.
    monkeypatch.setattr(http, "OLDER_PUSH_IGNORED_S", 0.0)
    lying.says("east", 1)
    assert source.news(GO_ON) == "east"


def test_a_token_goes_to_nobody_else_and_is_not_told(lying: Lying, source: PushServer, tmp_path: Path) -> None:
    lying.answers.append((302, {"Location": f"{lying.address}/elsewhere"}, b""))
    with raises(ConfigError, "client.http-status", status=302):
        source.news(GO_ON)
    assert [one["Authorization"] for one in lying.asked] == ["Bearer abc"]
    file = tmp_path / "token"
    file.write_text("hush\nhush hush\n")
    for make in (
        lambda: PushServer(lying.address, "shop", token="hush hush"),
        lambda: PushServer(lying.address, "shop", token_file=file).news(GO_ON),
    ):
        with pytest.raises(ConfigError) as refused:
            make()
        assert "hush" not in str(refused.value)


def test_what_answers_without_a_tag_is_no_push_server(lying: Lying, source: PushServer) -> None:
    without: list[dict[str, str]] = [{}, {"ETag": '"abc"'}]
    for headers in without:
        lying.answers.append((200, headers, b"{}"))
        with raises(ConfigError, "client.push-without-tag"):
            source.news(GO_ON)


def test_a_tag_is_read_as_it_was_written_also_where_a_proxy_made_it_weak() -> None:
    tag = PushTag(7, digest_of("x"))
    assert read_tag(str(tag)) == read_tag(f"W/{tag}") == tag
    assert [read_tag(one) for one in ("", '"7"', str(tag)[:-1], f'"-7-{tag.digest}"')] == [None] * 4
