"""Real servers on this machine for the demo, tests and benches: Kafka, databases, a network that fails on demand.

A version, brokers, security and settings enter; a running LabCluster leaves. The lab ends what it started, and nothing
else.
"""
