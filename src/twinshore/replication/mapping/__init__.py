"""Mapped twins: targets that held data before the link came, so that offsets differ and a map is kept.

Source batches are appended behind what is there, holes closed. In goes where each batch landed, out come extents, from
which an offset of either side is found on the other. `counterpart` and `offset_syncs` are pure.
"""
