"""How far a target is behind its source, since when, and who is told.

A sampler reads the ends of both clusters and the committed offsets of groups. Alerts open and close by the published
algorithm of four readings and by recovery points; webhooks and Zabbix are told. `link_status` says how links are,
from what every other package left in the store. This package replicates nothing and asks no mirror.
"""
