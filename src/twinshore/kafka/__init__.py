"""One Kafka cluster over the network: connections, leaders, topics, groups, logs and committed offsets.

A Cluster enters; answers leave as frozen values, and refusals as a KafkaError with code, place and remedy. This package
knows no link and no second cluster.
"""
