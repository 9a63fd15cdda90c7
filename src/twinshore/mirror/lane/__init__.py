"""What becomes of a lane's partitions, without sockets, clocks or threads: answers and times in, requests out.

`lane` holds the partitions of one lane (`track`, `mapped_track`, `roster`, `phase`) and asks what each says next. What
is fetched (`fetch_book`, `buckets`, `quota`) is cut for the twin (`cutting`, `joining`, `uncut`). Offsets
that nobody sees are taken by markers (`fates`, `marking`, `runs`, `gaps`). What an answer means stands in `answers`,
where a twin ends in `observe`, `history`, `reach`, `resting` and `certainty`; what passes by itself, and who is silent,
in `passing`, `trouble` and `silence`. `stamp` writes what a batch bears of its target. `orders` holds what
a pump is asked to do and what it accounts for.
"""
