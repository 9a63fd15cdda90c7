"""The spool: a producer's calls that wait on disk, bounded, and are sent after a restart.

A segment is a file of frames. A frame is a record with its length and checksum. The spool knows no broker, home or
switch.
"""
