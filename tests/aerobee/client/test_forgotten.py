"""A program that ends without closing its clients is told so, once."""

import subprocess
import sys

from aerobee.client import forgotten
from aerobee.client.life import Event, Life
from tests.conftest import AnyBroker

PROGRAM = """
import logging, os, sys
from aerobee.blocking import Message, Producer
logging.basicConfig(format="%(message)s", level="WARNING")
producer = Producer(sys.argv[1])
producer.start()
producer.send(Message("forgotten", b"x"))
if sys.argv[2] == "forks" and not os.fork():
    sys.exit()  # it opened nothing
if sys.argv[2] == "closes":
    producer.close()
if sys.argv[2] == "forks":
    os.wait()
"""


def said(broker: AnyBroker, how: str) -> str:
    """What the program prints on stderr."""
    command = [sys.executable, "-c", PROGRAM, broker.namesrv_address, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


def test_a_forgotten_close_is_told_at_the_end(broker: AnyBroker) -> None:
    lines = said(broker, "forgets").splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("not closed when the program ended: 1 Producer")


def test_what_was_closed_is_not_told_of(broker: AnyBroker) -> None:
    assert said(broker, "closes") == ""


def test_a_fork_does_not_tell_of_what_its_parent_opened(broker: AnyBroker) -> None:
    assert said(broker, "forks").count("not closed when the program ended") == 1


def test_only_what_runs_or_was_lost_is_open() -> None:
    life = Life("Producer")
    for event, is_open in (
        (Event.START, False),
        (Event.STARTED, True),
        (Event.ENDED, True),
        (Event.CLOSE, False),
    ):
        life.on(event)
        assert (life in forgotten.opened) == is_open, event
