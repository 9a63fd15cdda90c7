"""CRC-32C of a batch whose first bytes change: the new CRC follows from the old one without reading the rest again.

A CRC is linear: when A turns into B in front of `length` unchanged bytes, the CRC changes by crc(A) ^ crc(B) carried
over `length` zero bytes. So a header is written anew at a cost that hardly depends on the body, and a body that was
damaged on its way keeps a CRC that does not fit it: the target's broker refuses it.
"""

from __future__ import annotations

from array import array
from functools import cache

from crc32c import crc32c

_ONES = 0xFFFFFFFF
_STEP_BITS = 12  # below this many bytes the hardware's run over zeros is quicker than tables
_ZEROS = memoryview(bytes(1 << _STEP_BITS))


def carry(difference: int, length: int) -> int:
    """What a difference in CRC becomes after `length` unchanged bytes."""
    carried = crc32c(_ZEROS[: length & 0xFFF], difference ^ _ONES) ^ _ONES
    steps = length >> _STEP_BITS
    power = 0
    while steps:
        if steps & 1:
            first, second, third, fourth = _power(power)
            carried = (
                first[carried & 255] ^ second[carried >> 8 & 255] ^ third[carried >> 16 & 255] ^ fourth[carried >> 24]
            )
        steps >>= 1
        power += 1
    return carried


def carry_tables(length: int) -> tuple[array[int], ...]:
    """The map that carries over `length` unchanged bytes: what each byte of a CRC becomes, the lowest byte's first."""
    return _tables([carry(1 << bit, length) for bit in range(32)])


@cache
def _power(power: int) -> tuple[array[int], ...]:
    """The linear map that carries over 2^(12 + power) zero bytes."""
    if power == 0:
        return _tables([crc32c(_ZEROS, 1 << bit ^ _ONES) ^ _ONES for bit in range(32)])
    half = 1 << _STEP_BITS + power - 1
    return _tables([carry(carry(1 << bit, half), half) for bit in range(32)])


def _tables(columns: list[int]) -> tuple[array[int], ...]:
    """A linear map given by its images of the 32 single bits, as one table for each byte."""
    tables = []
    for byte in range(4):
        table = array("I", bytes(4 * 256))
        for value in range(1, 256):
            low = value & -value
            table[value] = table[value ^ low] ^ columns[8 * byte + low.bit_length() - 1]
        tables.append(table)
    return tuple(tables)
