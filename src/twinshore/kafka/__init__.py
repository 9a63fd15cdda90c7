"""One cluster over the network.

Nouns: transport (a byte stream to one broker), connection (a transport after its handshake, for control messages),
cluster view (who leads what; offsets; producer states) and admin (topics and their settings). A `fleet.Cluster` enters,
answers leave as frozen values; whatever a broker or the network refuses leaves as a KafkaError with place, code and
remedy. It does not know of links, twins or any other cluster.
"""
