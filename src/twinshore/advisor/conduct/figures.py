"""What habits cost, reckoned from counts, and how figures are told. Pure."""

from __future__ import annotations

from typing import Final

from twinshore.advisor.conduct.uses import Use
from twinshore.advisor.rule import Limit

# What a small request costs a broker and its client's connection, about: measured figures differ by machine.
REQUEST_US: Final = 50
# What a waiting producer or consumer is advised to wait.
LINGER_MS: Final = 20
FETCH_WAIT_MS: Final = 500
DAY_S: Final = 86_400
SECONDS = Limit("seconds", 20, "seconds of traffic from which on it is judged")


def lasts(use: Use, seconds: float) -> bool:
    """Whether there is enough of it to be judged."""
    return use.lasted_s >= seconds


def size(count: float) -> str:
    """As in "1.2 MB"."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= bytes_of:
            return f"{count / bytes_of:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def work(requests_s: float) -> str:
    """The processor time of so many requests a second, in an hour."""
    return (
        f"about {requests_s * 3_600 * REQUEST_US / 1e6:,.1f} s of a broker's processor time in an hour,"
        f" reckoned at {REQUEST_US} us a request"
    )


def part_of(count: float, whole: float) -> float:
    """0 where there is nothing."""
    return count / whole if whole else 0.0
