"""A conversation with a broker as a theatre script: who says what, in what order.

    with Playbook(broker.address) as play:
        play.says(310, send_fields("T", 0), b"hello")
        play.hears(0, queueOffset="0")
        play.says_bytes(b"GET / HTTP/1.1")
        play.hears_close()

Each line is spoken at once. When a line does not come as written, the error shows the play so far.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.kit.raw_client import RawAnswer, RawConnection


class Playbook:
    """One connection and what was said on it. Answers may come in any order within one `hears`."""

    def __init__(self, address: str, *, timeout_s: float = 10.0) -> None:
        self.connection = RawConnection(address, timeout_s=timeout_s)
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.connection.close()
        if error is not None:
            error.add_note("the play so far:\n  " + "\n  ".join(self.lines))

    def says(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> int:
        """We ask, and do not wait. Its opaque."""
        opaque = self.connection.ask(code, ext, body, oneway=oneway)
        self.lines.append(f"we: #{opaque} {code} {dict(ext or {})} +{len(body)} bytes")
        return opaque

    def says_bytes(self, data: bytes) -> None:
        """We send any bytes."""
        self.lines.append(f"we: {data[:48]!r}… ({len(data)} bytes)")
        self.connection.send_bytes(data)

    def hears(
        self, code: int, *, remark: str | None = None, opaque: int | None = None, **ext: str
    ) -> RawAnswer:
        """The broker answers with this code; among its fields these, in its remark these words."""
        answer = self.connection.hear()
        self.lines.append(f"broker: #{answer.opaque} {answer.code} {answer.remark!r} {answer.ext}")
        assert answer.code == code, f"code {answer.code} ({answer.remark}), not {code}"
        assert opaque in (None, answer.opaque), f"answered #{answer.opaque}, not #{opaque}"
        assert remark is None or remark in (answer.remark or ""), f"remark {answer.remark!r}"
        heard = {name: answer.ext.get(name) for name in ext}
        assert heard == ext, f"{heard} is not {ext}"
        return answer

    def hears_close(self) -> None:
        """The broker closes the connection without another word."""
        self.lines.append("broker: closes")
        self.connection.hear_close()
