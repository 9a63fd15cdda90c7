"""Bytes and their meaning: frames and exchanges (which answer belongs to which request), record batches, and the
requests of the hot path (fetch, produce, markers). `wire.serving` has the broker's side of produce and fetch.

In come received bytes and views of them, out go headers, views into the same buffers, and buffers to send. Malformed
input is a WireError that names the place. The rest of the protocol is kio's; sockets, clocks and retries are not known
here: a deadline is a value.

The broker's side: requests read and answers written, of Produce and Fetch in every version that clients from 2.1 on
send. Answers are read and requests written in those versions as well, for who stands between a client and a broker.

Records are views of the frame they came in, and are sent as they are; neither is copied. Tags that are not known here
are left out, and so are topics without partitions.
"""
