"""How one partition of Kafka keeps or loses a record: a model that is played, and searched for the smallest loss.

Nouns: setup (what topic, producer and consumer are set to), partition (replicas, leader, clients, at one moment), move
(one thing that happens; some are faults), step, story (moves that somebody wrote), schedule (moves that a search
found), harm (an acknowledged record is lost, there twice or out of order). Settings enter; sentences and values leave.
It knows no cluster, chance or time: the same settings give the same answer.

What an operator asks of the model: a story that is played, and a search for the smallest schedule that does harm.
"""
