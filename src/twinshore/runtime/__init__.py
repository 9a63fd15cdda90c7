"""What a process that must go on stands on, whatever it does: signals and its log, Spark's session, /metrics and
/health, threads that are kept on, leases, the ends of links, which clusters these are (`identity`), and companions that
run beside them. A process enters with its settings and the names of its links; what it does for them comes as
functions, and nothing here knows of a mirror.
"""
