"""The settings of the console."""

from dataclasses import dataclass

from aerobee.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """The HTTP listener of the console and its API."""

    console_port: int = setting("consolePort", 8_088, ge=0, le=65_535, own=True)
    """Port of the console; 0: none, and nothing of it is loaded. A port that is set must be free;
    while the one by default is taken, the broker serves without a console."""
    console_host: str = setting("consoleHost", "127.0.0.1", own=True)
    """Local address of the console. Without access control only this host is served, whatever it
    is."""
    console_names: str = setting("consoleNames", "", own=True)
    """Further host names under which browsers reach the console, separated by commas; IP addresses
    and localhost are known."""
    console_tls_enable: bool = setting("consoleTlsEnable", False, own=True)
    """Serve it over HTTPS alone, with tlsServerCertPath."""
    console_max_connections: int = setting("consoleMaxConnections", 64, ge=4, le=10_000, own=True)
    """Connections of the console at once; for one more the oldest idle one is closed."""
    console_body_readers: str = setting("consoleBodyReaders", "", own=True)
    """Users that see bodies of messages in the console, where they may consume the topic, separated
    by commas; none sees them by default."""
