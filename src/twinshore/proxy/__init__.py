"""One address for clients, and many clusters behind it, which clients see as one.

A **guest** is a client's connection. Each of its requests becomes a **move**: it is passed on to one broker as it came,
answered here, or it is an **errand** that asks several brokers and joins what they say. `core` decides that and does no
IO. `lookout` sees which clusters, brokers and topics there are, and `doors` has a listener for each broker that clients
are to see. A `guest` has connections to brokers of its own, each an `upstream`. What all guests of a process share is
its `house`; the `gate` says who comes in, and as whom. `serving` is the process; with `several` there are some at the
same ports. Records pass as the bytes they are, but for samples on which compression is tried. What is kept is in memory
alone.

Several processes that serve as one proxy, at the same ports: the system deals out connections among them.

Whoever was started by an operator serves nobody: the **keeper** starts a **part** for each core, hears what it says,
starts it again where it has ended or stands still, and answers for all at /metrics and /health. Parts know nothing of
each other: each is a separate proxy, as those on other machines are.
"""
