"""What a long-running process needs: signals, logging, leases, a scheduler, HTTP endpoints, Spark and compiled loops.

A process passes its settings, the names of its links and functions to run. This package knows no mirror.
"""
