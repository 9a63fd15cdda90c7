"""What a pump does next, decided purely: events and times in, commands out.

`pump_core` is told what desk, errands and connections bring, and yields commands (`commands`) in the order in which
they are to be carried out. `source_flow` and `target_flow` decide for one connection each, `unit_core` for one
transactional id; what is carried, `lane` knows. What desk and pump say to each other is in `desk_words`, what driver
and raft say, too. The pump's loop carries commands out over sockets, the simulation over modelled brokers.
Events are whole answers and lost connections, never single records.

What becomes of a lane's partitions, without sockets, clocks or threads: answers and times in, requests out.

`lane` holds the partitions of one lane (`track`, `mapped_track`, `roster`) and asks what each says next. What is
fetched (`fetch_book`, `quota`) is cut for the twin (`cutting`). Offsets that nobody sees are taken by markers
(`marking`, `runs`). What an answer means stands in `answers`, where a twin ends in `observe`, `history`,
`reach`, `resting` and `certainty`; what passes by itself in `passing`. `stamp` writes what a batch bears of its target.
`orders` holds what a pump is asked to do and what it accounts for.
"""
