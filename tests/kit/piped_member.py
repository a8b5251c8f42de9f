"""A member of a consumer group behind a pipe: a client of another language, in its own process."""

import threading
from collections.abc import Sequence
from pathlib import Path

from tests.kit.process import Child, DidNotStart

START_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
LINE_WITHIN_S = 3600.0


class PipedMember:
    """One running member, of a program that says "ready", "share QUEUES", "got MESSAGE" and "sent
    STATUS".
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.share: list[int] = []
        """The queues that its strategy gave it last."""
        self.received: list[str] = []
        self.sent: list[str] = []
        """What became of each message that it was to send: its status, or an error."""
        self.child = Child(command, log=log)
        self._started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._started.wait(START_WITHIN_S):
            raise DidNotStart(self.child.errors(), None)

    def _read(self) -> None:
        while True:
            try:
                word, _, rest = self.child.read_line(within_s=LINE_WITHIN_S).partition(" ")
            except (DidNotStart, ValueError, OSError):
                return
            if word == "ready":
                self._started.set()
            elif word == "share":
                self.share = sorted(map(int, rest.split()))
            elif word == "got":
                self.received.append(rest)
            elif word == "sent":
                self.sent.append(rest)

    def stop(self) -> None:
        """Have it leave its group and end."""
        self.child.write_line("")
        self._reader.join(STOP_WITHIN_S)
        self.child.kill()
