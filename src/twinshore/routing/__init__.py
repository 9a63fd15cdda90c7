"""Where each topic is written, as the clusters themselves say in `twinshore.homes`, and how clients follow.

A home record names a topic's home in an epoch. A client that follows announces itself, writes where the home records
say, and pauses while a switch holds its topic. A client needs neither a store nor a mirror for that. This package does
not know why a topic moves.
"""
