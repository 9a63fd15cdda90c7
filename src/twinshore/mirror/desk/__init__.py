"""What the driver's desk decides: who may pump a lane, what is on it, and what each pump is told. Pure.

It takes events with the time as an argument, and gives commands as values. The driver's desk carries them out over
sockets and under a lock; the simulation has modelled pumps carry them out.
"""
