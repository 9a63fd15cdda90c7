"""A process that keeps calls in a spool from several threads, sends them nowhere, and marks some as done; to be killed.

It says on its output what it begins to keep, what it has kept, and what was acknowledged, each before it may be taken
for granted: `begun`, `kept`, `acked` and a number.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path

from tests.client.spool.spooling import record
from twinshore.client.spool import Spool

THREADS = 4


def say(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())


def main(folder: str, seed: str) -> None:
    dice = random.Random(seed)
    spool = Spool(Path(folder), segment_bytes=20_000)
    sys.stderr.writelines(f"{note}\n" for note in spool.notes)
    numbers, gate = iter(range(spool.next_number, 1 << 60)), threading.Lock()

    def keeps(sizes: random.Random) -> None:
        while True:
            with gate:
                number = next(numbers)
                say("begun", number)
                batch = spool.keep([record(number, value=sizes.randbytes(sizes.randint(0, 3_000)))])
            assert batch is not None
            spool.commit(batch)
            say("kept", number)

    for number in range(THREADS):
        threading.Thread(target=keeps, args=(random.Random(f"{seed}-{number}"),), daemon=True).start()
    while True:
        spool.prepare("orders")
        for _ in range(dice.randint(0, 60)):
            if (head := spool.head("orders")) is None:
                break
            spool.handed_out("orders", head.number)
            if dice.random() < 0.9:
                say("acked", head.number)
                spool.done("orders", head.number)
            else:
                spool.given_back("orders", head.number)
                break
        spool.tend()
        time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])
