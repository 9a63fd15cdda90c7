"""How one partition of Kafka keeps or loses a record: a model that is played, or searched for the shortest loss.

The settings of topic, producer and consumer enter; the steps and the anomaly leave. The model knows no cluster, chance
or clock: equal settings give equal answers.
"""
