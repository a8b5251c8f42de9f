"""The generated modules of the blocking front, and the step that generates them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import blocking_front

if TYPE_CHECKING:
    from pathlib import Path

ASYNC = '''\
"""The async thing."""

from collections.abc import AsyncIterator, Callable


class Thing:
    async def aclose(self) -> None:
        """Ends it."""
        await self.perform(self._member.close())

    @property
    def size(self) -> int:
        """What it holds."""
        held = self._member.held
        return len(held)

    def name(self) -> str:
        return self._name

    def __aiter__(self) -> AsyncIterator[int]:
        return self._member.taken
'''
BLOCKING = '''\
"""The blocking thing.

Generated from `aio/thing.py`: change that one, and then run
`python -m tests.blocking_front --write`.
"""

from collections.abc import Iterator


class Thing:
    def close(self) -> None:
        """Ends it."""
        self.perform(self._member.close())

    @property
    def size(self) -> int:
        """What it holds."""
        with self._client.lock:
            held = self._member.held
            return len(held)

    def name(self) -> str:
        return self._name

    def __iter__(self) -> Iterator[int]:
        return self._member.taken
'''


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client with one async module, in a folder of its own."""
    for front in ("aio", "blocking"):
        (tmp_path / front).mkdir()
    (tmp_path / "aio" / "thing.py").write_text(ASYNC, encoding="utf-8")
    monkeypatch.setattr(blocking_front, "CLIENT", tmp_path)
    monkeypatch.setattr(blocking_front, "ROOT", tmp_path)
    monkeypatch.setattr(blocking_front, "GENERATED", ("thing",))
    monkeypatch.setattr(blocking_front, "WORDS", {"The async ": "The blocking "})
    return tmp_path


def test_the_blocking_front_is_what_is_generated_from_the_async_one() -> None:
    assert blocking_front.stale() == [], "run: python -m tests.blocking_front --write"


def test_waiting_goes_and_the_state_of_steps_is_used_within_the_lock(thing: Path) -> None:
    assert blocking_front.generated() == {"thing": BLOCKING}


def test_the_command_tells_what_is_stale_and_writes_it(
    thing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["blocking_front"])
    assert blocking_front.main() == 1
    assert "stale: blocking/thing.py" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["blocking_front", "--write"])
    assert blocking_front.main() == 0
    monkeypatch.setattr("sys.argv", ["blocking_front"])
    assert blocking_front.main() == 0


@pytest.mark.usefixtures("thing")
def test_words_that_the_async_front_says_no_longer_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocking_front, "WORDS", {"by tasks": "by threads"})
    with pytest.raises(ValueError, match="by tasks"):
        blocking_front.generated()
