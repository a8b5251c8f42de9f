"""A producer of our SDK as a program, for clients on a machine of their own.

`python -m tests.kit.sends NAMESRV TOPIC` sends one message after the other, each acknowledged by
the time of the next, and prints a line for each: its number, and how long it took in milliseconds.
A send that fails ends it.
"""

import itertools
import sys
import time

from aerobee import Message
from aerobee.blocking import Producer


def main(names: str, topic: str) -> None:
    """Until somebody ends it."""
    with Producer(names, group="sends") as producer:
        for number in itertools.count():
            began = time.monotonic()
            assert producer.send(Message(topic, str(number).encode())).ok
            print(number, round(1_000 * (time.monotonic() - began)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
