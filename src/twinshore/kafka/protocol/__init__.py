"""Bytes and their meaning: frames, record batches, and the requests of the hot path. Pure.

Received bytes and views enter; headers and views of the same buffers leave. Malformed input is a WireError. Fetch and
Produce are written here for both sides of a connection; kio writes the other APIs. Records are never copied.
"""
