"""Bytes and their meaning: record batches, and the requests of the hot path (fetch, produce, markers).

In come views of received buffers, out go headers, views into the same buffers, and buffers to send. Malformed input is
a WireError that names the place. The rest of the protocol is kio's; sockets, time and retries are not known here.
"""

from twinshore.wire.batch import BatchHeader, split_batches

__all__ = ["BatchHeader", "split_batches"]
