"""How each offset of the source gets onto its twin: as data, as an offset nobody sees, or below the log start.

In come fetched batches with the transactions that were aborted; out go their fates. Pure: markers and fillers are
requests that the lane hands out.
"""
