"""The memory that benches keep ready: touched at the asking, let go as others need it."""

from __future__ import annotations

import mmap
import time

import pytest

from bench.kit.ballast import Ballast, free_bytes

MB = 1 << 20


def test_it_holds_what_is_free_beyond_its_bound_and_lets_go_when_others_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as under make: one print is then several writes
    with Ballast(free_bytes() - 500 * MB) as ballast:
        held = [ballast.fill() for _ in range(5)][-1]
        holder = ballast.holder
        assert holder is not None
        assert 0 < held <= holder.memory_info().rss
        ours: list[mmap.mmap] = []
        # More than once, as others on this machine may give memory back meanwhile.
        while holder.memory_info().rss > held // 2 and len(ours) < 60:
            ours.append(_touched(50 * MB))
            time.sleep(0.1)
        assert holder.memory_info().rss <= held // 2
        for piece in ours:
            piece.close()


def test_a_holder_that_was_ended_by_somebody_else_is_done_without() -> None:
    with Ballast(free_bytes()) as ballast:
        assert ballast.holder is not None
        ballast.holder.kill()
        ballast.holder.wait(10)
        assert ballast.fill() == ballast.fill() == 0


def _touched(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
