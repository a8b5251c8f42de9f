"""How much of everything an HTTP/2 peer may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """The limits of one connection.

    A rate is a number of frames at once that comes back within a second: more than that are a
    flood, and end the connection with ENHANCE_YOUR_CALM.
    """

    streams: int = 1_000
    """Requests at once; the peer is told."""
    header_list_bytes: int = 16_384
    """The header of one request: names, values and 32 bytes for each field; the peer is told."""
    header_fields: int = 256
    continuations: int = 8
    """CONTINUATION frames of one header."""
    stream_window_bytes: int = 1_048_576
    """Bytes of one request that are received and not taken; the peer is told."""
    connection_window_bytes: int = 8_388_608
    """Bytes of all requests that are received and not taken."""
    stream_out_bytes: int = 262_144
    """Bytes of one answer that wait for the peer's windows; then there is no room for more."""
    connection_out_bytes: int = 4_194_304
    """Bytes of all answers that wait for the peer's windows."""
    resets_per_s: int = 1_000
    """Streams that the peer begins and resets, or that are reset for its faults."""
    pings_per_s: int = 10_000
    """Clients that measure the delay send one in each round trip while they receive."""
    settings_per_s: int = 100
    window_updates_per_s: int = 100_000
    glitches_per_s: int = 10_000
    """Empty DATA frames, PRIORITY and unknown frames: what a peer never needs to send so often."""
