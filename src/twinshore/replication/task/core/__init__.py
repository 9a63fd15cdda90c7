"""What a task does next: events and times in, commands out. Pure.

Requests and answers of one source and one target connection are decided here, partition by partition. The runner
carries commands out over sockets, the simulation over modelled brokers. Events are whole answers and lost connections,
never single records.
"""
