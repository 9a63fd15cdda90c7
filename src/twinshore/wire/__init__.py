"""Bytes and their meaning: frames and exchanges (which answer belongs to which request), record batches, and the
requests of the hot path (fetch, produce, markers). `wire.serving` has the broker's side of produce and fetch.

In come received bytes and views of them, out go headers, views into the same buffers, and buffers to send. Malformed
input is a WireError that names the place. The rest of the protocol is kio's; sockets, clocks and retries are not known
here: a deadline is a value.
"""

from twinshore.wire.batch import BatchHeader, split_batches

__all__ = ["BatchHeader", "split_batches"]
