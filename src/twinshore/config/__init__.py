"""What exists: clusters, their security, links between them, topic partitions, and the errors every room raises.

Settings enter as TOML text (`settings`), leave as frozen values. Nothing here knows of sockets, Spark, SQL or a clock.

MirrorMaker 2's settings read, and the same links proposed as Twinshore's: text in, TOML and a report out.

`reading` makes properties of a dedicated MirrorMaker's file or of Connect's JSON; `meanings` is the table of what each
property becomes, or why it has no counterpart; `proposal` puts links together. No secret is ever copied.

Settings: TOML text and environment in, frozen values out, or one ConfigError that lists all that is wrong.

`whole` is what one process is told, and `sections` a file for each section, which declares its keys with `declaring`.
"""
