"""The sections of the settings: a file each, which declares its keys and itself, as `SECTION`.

A new section is a new file here: the reader, the environment and the page find it. All of them stand in this room and
not in the rooms that use them, as one file serves every process, and the client side has this room but not theirs.
"""
