"""Mapped twins: targets that held data before the link came, so that offsets differ and a map is kept.

Source batches are appended behind what is there. Where each batch landed becomes offset runs, by which an offset of
either side is found on the other.
"""
