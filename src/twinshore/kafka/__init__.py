"""One cluster over the network.

Nouns: transport (a byte stream to one broker), connection (a transport after its handshake, for control messages),
cluster view (who leads what; offsets; producer states) and admin (topics and their settings). A `fleet.Cluster` enters,
answers leave as frozen values; whatever a broker or the network refuses leaves as a KafkaError with place, code and
remedy. It does not know of links, twins or any other cluster.

A stretch of a partition, read from its cluster: what consumers see there, and what they do not.

`reader` streams a long stretch over a separate connection, past new leaders and lost lines. `looks` takes a few
batches or records over the cluster's shared connections, and asks where many logs end or begin. `visible` tells, of
what either brought, the offsets that consumers see. Whoever compares, maps or rescues records reads by these.
"""
