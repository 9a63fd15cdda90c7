"""Values and settings: clusters, security, links, topic partitions, and the errors of every package. Pure.

`settings` reads TOML and the environment, and returns frozen values or one ConfigError that lists every mistake.
`sections` has a module for each section of the file. `import_mirrormaker` translates the settings of MirrorMaker 2.
This package knows no socket, Spark, SQL or clock.
"""
