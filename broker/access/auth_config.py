"""The settings of access control. Source: configuration §3.8 (AuthConfig)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from aerobee.setting import setting

__all__ = ["AuthConfig", "credentials_of", "session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Whether requests need an account, and the account of the broker itself."""

    acl_enable: bool = setting("aclEnable", False)
    """Serve only requests that an account of plain_acl.yml has signed and may send (ACL 1.0)."""
    acl_config_dir: str = setting(
        "aclConfigDir",
        "",
        kind="path",
        own=True,
        derived="conf below ROCKETMQ_HOME, else the directory of the file given by -c, else conf"
        " below storePathRootDir",
    )
    """Directory of plain_acl.yml, and of more such files below acl/."""
    metrics_token: str = setting("metricsToken", "", own=True)
    """Bearer token that /metrics asks for. Without one, and with access control, only this host may
    read them; the probes are open to all.
    """
    inner_client_authentication_credentials: str = setting(
        "innerClientAuthenticationCredentials", "", kind="session"
    )
    """The account of this broker's own requests to name servers: {"accessKey":…, "secretKey":…}."""

    @property
    def enabled(self) -> bool:
        """Whether a request needs an account."""
        return self.acl_enable


def session(text: str) -> str:
    """Check `innerClientAuthenticationCredentials`. Raises: ValueError, without the secret."""
    return checked(text, "accessKey", "secretKey")


def checked(text: str, name: str, secret: str) -> str:
    """Check that a text is a JSON object with these two texts. Raises: ValueError."""
    try:
        values = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        values = {}
    if not values.get(name, "").strip() or not values.get(secret, "").strip():
        raise ValueError(f'is no JSON such as {{"{name}":"…","{secret}":"…"}}')
    return text


def credentials_of(text: str) -> tuple[str, str] | None:
    """Name and secret of a text that was checked; None for an empty one."""
    if not text:
        return None
    values = msgspec.json.decode(text, type=dict[str, str])
    return values["accessKey"].strip(), values["secretKey"].strip()
