"""Both ways to see a delay, on the same made-up traffic: how soon each finds a fault, how often each cries for nothing.

A trace is one partition's two ends, second by second, from a seed; a trial (`trial`) lets both algorithms
watch it with the settings' own periods, thresholds and manners, and counts. Operators try their thresholds with it.
"""
