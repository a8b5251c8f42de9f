"""HTTP/2 of one connection, seen from the server: bytes → events, commands → bytes.

The only module that knows ngh2, a binding of libnghttp2 (docs/decisions/0014). Frames, HPACK and
flow control are libnghttp2's; ours is what a peer may do too often, and how much of an answer may
wait. Nothing raises for what a peer sends: a connection beyond repair says so in `ended`. A command
for a stream that is gone has no effect, for it may go while its answer is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import ngh2

from aerobee.remoting.http2 import events as e
from aerobee.remoting.http2.events import ErrorCode
from aerobee.remoting.http2.floods import Floods, go_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.remoting.http2.limits import Http2Limits

COUNTED: Final[dict[type[ngh2.Event], str]] = {
    ngh2.PingReceived: "pings_per_s",
    ngh2.SettingsReceived: "settings_per_s",
    ngh2.WindowUpdated: "window_updates_per_s",
}


class Engine:
    """One connection: `receive`, take `events`, answer, write what `output` gives."""

    __slots__ = (
        *("_core", "_events", "_farewell", "_floods", "_full", "_last", "_limits", "_now_ms"),
        *("_unwanted", "ended"),
    )

    def __init__(self, limits: Http2Limits) -> None:
        self._core = ngh2.Connection(ngh2.Role.SERVER, _configuration(limits))
        self._core.initiate_connection(_settings(limits))
        self._core.set_local_window_size(limits.connection_window_bytes)
        self._limits = limits
        self._floods = Floods(limits)
        self._events: list[e.Event] = []
        self._full: dict[int, None] = {}
        self._unwanted: list[int] = []
        self._last, self._now_ms = 0, 0.0
        self._farewell = b""
        self.ended: e.ConnectionEnded | None = None
        """Nothing is received or answered any more; what `output` gives now is the last."""

    def receive(self, data: bytes | memoryview, now_ms: float) -> None:
        """Take bytes, cut anywhere; at most some 64 KiB at once, for frames may be tiny."""
        if self.ended is not None:
            return
        self._now_ms = now_ms
        try:
            self._core.receive_data(data)
        except ngh2.NGH2Error as error:
            self._collect()
            flood = isinstance(error, ngh2.DenialOfServiceError)
            code = ErrorCode.ENHANCE_YOUR_CALM if flood else ErrorCode.PROTOCOL_ERROR
            self._farewell = go_away(self._last, code)
            self._end(code, str(error))
        else:
            self._collect()

    def events(self) -> list[e.Event]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def respond(self, stream: int, headers: Iterable[e.Header], *, end: bool) -> None:
        """Begin an answer; with `end` it has no body and no trailers."""
        self._command(self._core.send_response, stream, headers, end_stream=end)

    def send(self, stream: int, data: bytes) -> bool:
        """Add to the body of an answer; whether there is room for more.

        If not, `StreamDrained` says when. Data without room is kept all the same.
        """
        if not self._command(self._core.send_data, stream, data) or self._room(stream, 1):
            return True
        self._full[stream] = None
        return False

    def finish(self, stream: int, trailers: Iterable[e.Header]) -> None:
        """End an answer behind its body."""
        self._command(self._core.send_trailers, stream, trailers)

    def answer(
        self,
        stream: int,
        headers: Iterable[e.Header],
        data: bytes,
        trailers: Iterable[e.Header],
    ) -> None:
        """Give a whole answer of one message: nothing follows that would need room. Hot."""
        core = self._core
        try:
            core.send_response(stream, headers)
            core.send_data(stream, data)
            core.send_trailers(stream, trailers)
        except ngh2.NGH2Error:
            return

    def close(self, stream: int, data: bytes) -> None:
        """End an answer that has no trailers with the rest of its body."""
        self._command(self._core.send_data, stream, data, end_stream=True)

    def reset(self, stream: int, code: ErrorCode) -> None:
        """End a stream now; what is queued of its answer is dropped."""
        self._command(self._core.reset_stream, stream, code)

    def leave_rest(self, stream: int) -> None:
        """Ask the peer not to send the rest of a request that was answered by a head alone: a reset
        without an error behind the answer. Source: RFC 9113 §8.1.
        """
        self._unwanted.append(stream)

    def taken(self, stream: int, size_bytes: int) -> None:
        """Let the peer send so much more, for so much of its data was taken."""
        try:  # Hot: not by `_command`.
            self._core.acknowledge_received_data(size_bytes, stream)
        except ngh2.NGH2Error:
            return

    def go_away(self, *, refuse: bool) -> None:
        """Ask the peer to begin no more streams; `refuse`: those that it begins are not served."""
        core = self._core
        self._command(core.send_goaway if refuse else core.send_shutdown_notice)

    def output(self, size_bytes: int | None = None) -> bytes:
        """The next bytes for the peer, at most so many; empty: nothing may be sent now."""
        if self.ended is not None:
            data, self._farewell = self._farewell, b""
            return data
        data = self._core.data_to_send(size_bytes)
        if not data and self._unwanted:  # now all of their answers are written
            for stream in self._unwanted:
                self.reset(stream, ErrorCode.NO_ERROR)
            self._unwanted.clear()
            data = self._core.data_to_send(size_bytes)
        self._collect()
        if self._full:
            for stream in [stream for stream in self._full if self._room(stream, 2)]:
                self._full.pop(stream, None)
                self._events.append(e.StreamDrained(stream))
        return data

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that wait for the peer's windows, or for `output` to be called."""
        return self._core.queued_body_size()

    def _command(self, act: Callable[..., None], *args: object, **options: object) -> bool:
        try:
            act(*args, **options)
        except ngh2.NGH2Error:
            return False
        return True

    def _room(self, stream: int, share: int) -> bool:
        core, limits = self._core, self._limits
        return (
            core.queued_body_size(stream) * share < limits.stream_out_bytes
            and core.queued_body_size() * share < limits.connection_out_bytes
        )

    def _collect(self) -> None:
        events = self._events
        for event in self._core.events():
            if isinstance(event, ngh2.DataReceived):
                if event.data or event.end_stream:
                    events.append(e.DataReceived(event.stream_id, event.data, event.end_stream))
            elif isinstance(event, ngh2.RequestReceived):
                self._last = event.stream_id
                events.append(e.RequestReceived(event.stream_id, event.headers, event.end_stream))
            elif isinstance(event, ngh2.StreamClosed):
                self._full.pop(event.stream_id, None)
                events.append(e.StreamClosed(event.stream_id, event.error_code))
                if event.error_code != ErrorCode.NO_ERROR:
                    self._count("resets_per_s")
            elif isinstance(event, ngh2.TrailersReceived):  # gRPC has none in a request
                events.append(e.DataReceived(event.stream_id, b"", True))
            elif isinstance(event, ngh2.GoAwayReceived):
                events.append(e.GoAwayReceived(event.error_code))
            elif isinstance(event, ngh2.ConnectionClosed):
                reason = self._floods.reason or event.debug_data.decode("ascii", "replace")
                self._end(event.error_code, reason)
            elif type(event) in COUNTED:
                self._count(COUNTED[type(event)])

    def _count(self, kind: str) -> None:
        if not self._floods.count(kind, self._now_ms):
            self._command(self._core.terminate_connection, ErrorCode.ENHANCE_YOUR_CALM)

    def _end(self, code: int, reason: str) -> None:
        self.ended = e.ConnectionEnded(code, reason)
        self._events.append(self.ended)


@cache
def _configuration(limits: Http2Limits) -> ngh2.Configuration:
    return ngh2.Configuration(
        auto_window_update=False,
        max_inbound_header_list_size=limits.header_list_bytes,
        max_inbound_header_count=limits.header_fields,
        max_continuations=limits.continuations,
        max_outbound_ack=limits.pings_per_s,
        # The limit of h2 would end a flood of resets with INTERNAL_ERROR, and by a clock of its
        # own: we count.
        stream_reset_rate_limit=(1 << 32, 1 << 32),
        glitch_rate_limit=(limits.glitches_per_s, limits.glitches_per_s),
    )


@cache
def _settings(limits: Http2Limits) -> dict[int, int]:
    return {
        ngh2.Setting.MAX_CONCURRENT_STREAMS: limits.streams,
        ngh2.Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        ngh2.Setting.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        ngh2.Setting.ENABLE_PUSH: 0,
    }
