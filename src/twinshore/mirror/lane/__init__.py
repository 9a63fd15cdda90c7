"""What becomes of a lane's partitions, without sockets, clocks or threads: answers and times in, requests out.

`lane` holds the partitions of one lane (`track`, `mapped_track`, `roster`) and asks what each says next. What is
fetched (`fetch_book`, `quota`) is cut for the twin (`cutting`). Offsets that nobody sees are taken by markers
(`marking`, `runs`). What an answer means stands in `answers`, where a twin ends in `observe`, `history`,
`reach`, `resting` and `certainty`; what passes by itself in `passing`. `stamp` writes what a batch bears of its target.
`orders` holds what a pump is asked to do and what it accounts for.
"""
