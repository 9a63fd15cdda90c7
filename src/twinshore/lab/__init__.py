"""Real Kafka clusters on this machine, for `twinshore lab` and the demo.

A version, brokers and settings enter; a running LabCluster leaves. The lab ends what it started, and nothing else.
"""
