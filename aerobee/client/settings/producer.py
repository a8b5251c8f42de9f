"""The options of a producer, validated."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client import compression
from aerobee.client.message import DELAY_LEVELS, GROUP_MAX, check_name, check_topic
from aerobee.client.settings.client import DEFAULT_RETRY, ClientOptions, RetryPolicy, check_kind
from aerobee.errors import ConfigurationError
from aerobee.store.format.system_names import TRACE_TOPIC

JAVA_DEFAULT_GROUP = "DEFAULT_PRODUCER"


class ProducerOptions(ClientOptions, total=False):
    """The keyword options of a producer: those of ProducerConfig, and of its own client."""

    group: str
    timeout: float
    retry: RetryPolicy
    compression: compression.Compression | None
    compress_above: int
    max_message_size: int
    delay_levels: int
    latency_fault_tolerance: bool
    outbox_messages: int
    outbox_bytes: int
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The options of a producer, validated. Times in seconds, sizes in bytes."""

    group: str = "aerobee_producer"
    """The producer group, as brokers list it."""
    timeout: float = 10.0
    """The timeout of one send, including the query of the route and all tries."""
    retry: RetryPolicy = DEFAULT_RETRY
    """How often a send is tried, and after which failures."""
    compression: compression.Compression | None = "zlib"
    """How long bodies are compressed: `zlib`, `lz4`, `zstd`, or None for not at all."""
    compress_above: int = 4096
    """The least size of a body that is compressed, if that makes it shorter."""
    max_message_size: int = 4 << 20
    """The most bytes of a body; longer ones are refused before anything is sent."""
    delay_levels: int = DELAY_LEVELS
    """How many levels the brokers' `messageDelayLevel` has; higher ones are refused."""
    latency_fault_tolerance: bool = False
    """Whether brokers that failed or were slow are avoided, for 2 to 30 s (Java's
    `sendLatencyFaultEnable`); a retry goes to another broker in any case."""
    outbox_messages: int = 10_000
    """The most messages in the outbox of `send_soon`; then it waits for results."""
    outbox_bytes: int = 32 << 20
    """The most bytes in the outbox; a longer message is accepted while it is empty."""
    trace: bool = False
    """Whether RocketMQ's message trace is written, in the background; overload may lose some."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the trace."""

    def __post_init__(self) -> None:
        check_name("producer group", self.group, GROUP_MAX)
        if self.group == JAVA_DEFAULT_GROUP:
            raise ConfigurationError(f"group {self.group} is Java's name for none: choose another")
        check_topic(self.trace_topic)
        check_kind("retry", self.retry, RetryPolicy)
        compression.check(self.compression)
        if not self.timeout > 0:
            raise ConfigurationError("timeout is a number of seconds above 0")
        if self.outbox_messages < 1 or self.outbox_bytes < 1:
            raise ConfigurationError("outbox_messages and outbox_bytes are at least 1")
