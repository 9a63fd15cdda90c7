"""A call bears a header by which it is known again wherever it was copied to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinshore.client.doubts import HEADER, mark_of, marked
from twinshore.client.kept import Kept

HEADERS = st.lists(st.tuples(st.sampled_from([HEADER, "other"]), st.none() | st.binary(max_size=9)), max_size=4)


@given(HEADERS, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_mark_is_the_call_s_own_whatever_it_bore_before(
    headers: list[tuple[str, bytes | None]], number: int, timestamp: int
) -> None:
    """As of a program that reads records and sends them on."""
    kept = Kept(number, "orders", b"value", None, -1, None, timestamp, tuple(headers))
    found = marked(kept, "who", 77)
    assert mark_of(found.headers) == b"who-%d" % number
    assert found.headers[:-1] == kept.headers
    assert found.timestamp == (timestamp or 77), "a time that the application has set stays"
    assert mark_of(()) is None
