"""The settings of access control. Source: configuration §3.8 (AuthConfig)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from aerobee.remoting.wire.codes import RequestCode
from aerobee.setting import setting


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
    authentication_enabled: bool = setting("authenticationEnabled", False)
    """Serve only requests that an enabled user has signed."""
    authorization_enabled: bool = setting("authorizationEnabled", False)
    """Serve only what the policies of the user allow; super users may do everything."""
    authentication_whitelist: str = setting(
        "authenticationWhitelist", "", separator=",", kind="request_codes"
    )
    """Request codes that need no signature."""
    authorization_whitelist: str = setting(
        "authorizationWhitelist", "", separator=",", kind="request_codes"
    )
    """Request codes that need no policy."""
    init_authentication_user: str = setting("initAuthenticationUser", "", kind="user")
    """A super user that is created at a start that does not find it: {"username":…,
    "password":…}.
    """
    inner_client_authentication_credentials: str = setting(
        "innerClientAuthenticationCredentials", "", kind="session"
    )
    """The account of this broker's own requests to name servers: {"accessKey":…, "secretKey":…}.
    With users it is created as a super user where it is missing.
    """
    migrate_auth_from_v1_enabled: bool = setting("migrateAuthFromV1Enabled", False)
    """Make users and policies of the accounts of plain_acl.yml that are no users yet, at each
    start.
    """
    max_users: int = setting("maxUsers", 10_000, ge=1, le=100_000, own=True, live=True)
    """Users in all."""
    max_acl_entries: int = setting(
        "maxAclEntries", 100_000, ge=1, le=1_000_000, own=True, live=True
    )
    """Entries of the policies of all users together; each user has 1,000 at most."""
    admin_access_log: bool = setting("adminAccessLog", False, own=True, live=True)
    """Log each request of the admin pool, also of those that only read."""

    @property
    def enabled(self) -> bool:
        """Whether a request needs an account."""
        return self.acl_enable or self.authentication_enabled


def request_codes(text: str) -> str:
    """Check request codes, separated by commas. Raises: ValueError."""
    codes = [code.strip() for code in text.split(",") if code.strip()]
    known = {str(int(code)) for code in RequestCode}
    for word in codes:
        if word not in known:
            raise ValueError(f"{word:.20} is not a request code")
    return ",".join(codes)


def codes_of(text: str) -> frozenset[int]:
    """The codes of a list that was checked."""
    return frozenset(int(code) for code in text.split(",") if code)


def user(text: str) -> str:
    """Check an `initAuthenticationUser`. Raises: ValueError, which does not repeat the secret."""
    return checked(text, "username", "password")


def session(text: str) -> str:
    """Check `innerClientAuthenticationCredentials`. Raises: ValueError, without the secret."""
    return checked(text, "accessKey", "secretKey")


def checked(text: str, name: str, secret: str) -> str:
    """Check that a text is a JSON object with these two texts. Raises: ValueError."""
    try:
        values = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        values = {"": ""}
    if not values:
        return ""
    if not values.get(name, "").strip() or not values.get(secret, "").strip():
        raise ValueError(f'is no JSON such as {{"{name}":"…","{secret}":"…"}}')
    return text


def credentials_of(text: str) -> tuple[str, str] | None:
    """Name and secret of a text that was checked; None for an empty one."""
    if not text:
        return None
    values = msgspec.json.decode(text, type=dict[str, str])
    name = values.get("username") or values["accessKey"]
    return name.strip(), (values.get("password") or values["secretKey"]).strip()
