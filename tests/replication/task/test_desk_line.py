"""The line between a task and its driver: what becomes of it where the driver is gone."""

from __future__ import annotations

import socket

import pytest

from twinshore.replication.task.runner import CoordinatorLost, DriverConnection


def test_a_line_whose_first_word_fails_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is turned away is launched again and again: each time a connection would stay open."""
    made: list[socket.socket] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        del address, timeout
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        theirs.close()
        made.append(ours)
        return ours

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "TCP_NODELAY", socket.SO_REUSEADDR)
    monkeypatch.setattr(socket, "IPPROTO_TCP", socket.SOL_SOCKET)
    with pytest.raises(CoordinatorLost, match="does not take a message"):
        DriverConnection("coordinator", 1, token="t")
    assert [one.fileno() for one in made] == [-1]
