"""What a pump does next, decided purely: events and times in, commands out.

`pump_core` is told what desk, errands and connections bring, and yields commands (`commands`) in the order in which
they are to be carried out. `source_flow` and `target_flow` decide for one connection each, `unit_core` for one
transactional id; what is carried, `lane` knows. What desk and pump say to each other is in `desk_words`, what driver
and raft say, too. The pump's loop carries commands out over sockets, the simulation over modelled brokers.
Events are whole answers and lost connections, never single records.
"""
