"""One address for clients, and many clusters behind it, which clients see as one cluster.

Each request of a client connection becomes a decision: forward it to one broker, answer it, or fan it out to several
brokers and join their answers. `core` decides and does no IO. One event loop carries decisions out; a supervisor may
run several workers at the same ports. Records pass as bytes. State is in memory alone.
"""
