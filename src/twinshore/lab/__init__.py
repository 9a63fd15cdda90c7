"""Real servers on this machine for the demo, the tests and the benches: Kafka, databases, a network that fails.

Enters: what a cluster shall be (version, brokers, security, settings). Leaves: a running LabCluster and the fleet's
Cluster to reach it by. It knows nothing of mirrors; everything it starts, it ends, and it ends nothing else.
"""
