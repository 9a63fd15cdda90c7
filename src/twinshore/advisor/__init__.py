"""How reliable a cluster is: what is at risk, in which event, and which command mends it.

A cluster, the store and a policy enter; findings leave, and changed topic settings where an operator says `--fix`. The
client audit judges clients the same way, by what proxies counted. The simulator plays how one partition keeps or loses
a record.
"""
