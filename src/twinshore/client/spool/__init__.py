"""What an operator may ask for of a spool that a producer left: to look at it, to send it, to drop a topic of it.

A spool: calls of a producer that are kept back, on the disk, bounded, and sent after a restart.

Nouns: segment (a file of records), frame (a record with its length and checksum), mark (what of a topic is done), gap
(bytes of a segment that are no record), portion (what is read back at a time). What a call was, as a value, enters; the
same value leaves once its turn comes. Of brokers, homes and switches nothing is known here.
"""
