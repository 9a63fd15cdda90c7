"""Where every consumer group stands, on both sides of a link.

Nouns: place (the offset that a group committed for a partition), translation (an offset of one side in terms of the
other), scope (the partitions that a link keeps twins of), round (one look at both sides, and the commits that follow
from it). What brokers answer enters; commits leave, for groups without members, and backwards only where the source's
group was set back or an operator asks for it (`groups move --backwards`). It does not know how records cross, nor when
a group should move: only where it would read on.

What operators may ask of consumer groups, as functions: a module for each, in the shape of `config.model`.
"""
