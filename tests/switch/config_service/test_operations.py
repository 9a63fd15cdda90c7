"""What an operator asks of the centre: told, refused or done, with a row in the audit."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from twinshore.client.core.pushes import digest_of
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.settings import load_settings
from twinshore.state.proxies import PushRow
from twinshore.state.store import Store, open_store
from twinshore.switch.pushes import (
    NewToken,
    PushCache,
    SetPush,
    apply_push,
    make_token,
    plan_remove,
    plan_revoke,
    plan_set,
    read_pushes,
    revoke,
    serve,
)
from twinshore.switch.pushes import read_tokens as look_at_tokens


def push(home: str) -> str:
    return json.dumps({"clusters": {home: {"bootstrap.servers": f"{home}:9092"}}, "home": home})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as made:
        yield made


def test_what_is_told_is_told_once_and_by_one(store: Store) -> None:
    first = plan_set(SetPush("shop", push("east")), store)
    (step,) = apply_push(first, store, by="anna")
    assert mentions(step.sentence(done=True), "shop", "revision 1", "home east", "east:9092")
    assert plan_set(SetPush("shop", push("east")), store).steps == ()
    later = [plan_set(SetPush("shop", push(home)), store) for home in ("west", "north")]
    assert [mentions(one, "shop", "from east to west") for one in later[0].remarks] == [True]
    assert len(list(apply_push(later[0], store, by="bob"))) == 1
    with raises(RefusedError, "switch.push-changed", app="shop"):
        list(apply_push(later[1], store, by="anna"))
    with raises(RefusedError, "switch.push-changed", app="shop"):
        plan_set(SetPush("shop", push("east"), expected=digest_of(push("east"))), store)
    (seen,) = read_pushes(store, "shop")
    assert (seen["revision"], seen["set_by"], seen["push"]) == (2, "bob", push("west"))
    (gone,) = apply_push(plan_remove("shop", store), store, by="anna")
    assert "stay as they are" in gone.sentence(done=True)
    with raises(ConfigError, "switch.no-push", app="shop"):
        plan_remove("shop", store)
    (again,) = apply_push(plan_set(SetPush("shop", push("east")), store), store, by="anna")
    assert "revision 4 is told" in again.sentence(done=True), "a revision is never used again"
    with raises(ConfigError, "switch.push-unusable", cluster="east"):
        plan_set(SetPush("shop", push("east").replace("{", '{"settings": {"linger.mss": 5}, ', 1)), store)
    assert [(row.actor, row.before, row.after) for row in store.audit.rows()] == [
        ("anna", "revision 3", "revision 4"),
        ("anna", "revision 2", ""),
        ("bob", "revision 1", "revision 2"),
        ("anna", "", "revision 1"),
    ]


def test_a_token_is_shown_once_and_known_by_its_digest(store: Store) -> None:
    made = [make_token(NewToken("shop", may), store, by="anna") for may in (False, True)]
    assert [one["may"] for one in look_at_tokens(store)] == ["may ask", "may push"]
    [revoked] = revoke(plan_revoke(digest_of(made[0])[:8], store), store, by="bob")
    row = revoked.row
    assert [one.digest for one in store.pushes.tokens()] == [digest_of(made[1])]
    for beginning in ("", row.digest[:8]):
        with raises(ConfigError, "switch.not-one-token", count=0, beginning=beginning):
            plan_revoke(beginning, store)
    assert not any(one in str(store.audit.rows()) for one in made)


def test_no_look_puts_back_what_a_later_one_has_seen(store: Store) -> None:
    def tell(home: str) -> None:
        list(apply_push(plan_set(SetPush("shop", push(home)), store), store, by="anna"))

    async def play() -> str:
        board = PushCache(store)
        tell("east")
        slow, seen, go = board._read, threading.Event(), threading.Event()

        def late(known: dict[str, PushRow]) -> object:
            found = slow(known)
            seen.set()
            go.wait(10)
            return found

        board._read = late  # type: ignore[assignment, method-assign]
        first = asyncio.create_task(board.refresh())
        await asyncio.to_thread(seen.wait, 10)
        board._read = slow  # type: ignore[method-assign]
        tell("west")
        second = asyncio.create_task(board.refresh())
        await asyncio.sleep(0.2)
        go.set()
        await asyncio.gather(first, second)
        row = board.push("shop")
        return row.text if row else ""

    assert asyncio.run(play()) == push("west")


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "twinshore.toml"
        file.write_text(f"[push]\nport = {taken.getsockname()[1]}\n")
        with pytest.raises(ConfigError, match="cannot be served"):
            serve(load_settings(file, {}))
