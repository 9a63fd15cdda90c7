"""A stretch of a partition, read from its cluster: what consumers see there, and what they do not.

`reader` streams a long stretch over a separate connection, past new leaders and lost lines. `looks` takes a few
batches or records over the cluster's shared connections, and asks where many logs end or begin. `visible` tells, of
what either brought, the offsets that consumers see. Whoever compares, maps or rescues records reads by these.
"""
