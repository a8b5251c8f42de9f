"""The options of all that connects to a cluster: name servers, account, TLS, namespace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from msgspec import field

from aerobee.errors import ConfigurationError
from aerobee.spark import option_values as values
from aerobee.spark.access import Access, Secret
from aerobee.spark.option_values import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCOUNT: Final = {
    "access_key": "AEROBEE_ACCESS_KEY",
    "secret_key": "AEROBEE_SECRET_KEY",
    "security_token": "AEROBEE_SECURITY_TOKEN",
}
TLS: Final = {
    "tls": "AEROBEE_TLS",
    "tls_ca_file": "AEROBEE_CA_FILE",
    "tls_cert_file": "AEROBEE_CERT_FILE",
    "tls_key_file": "AEROBEE_KEY_FILE",
    "tls_server_hostname": "AEROBEE_SERVER_HOSTNAME",
}
"""The environment variables of the fields, also for `aerobee spark JOB`."""
NAMESPACE: Final = {"namespace": "AEROBEE_NAMESPACE"}


class ClusterOptions(Options, frozen=True, kw_only=True):
    """The options of a cluster and of the connections to it."""

    aliases: ClassVar[dict[str, str]] = {"bootstrap": "nameServer"}

    name_servers: Annotated[tuple[str, ...], values.addresses] = field(name="nameServer")
    """Name servers, `host:port;host:port`; required, unless `NAMESRV_ADDR` is set in the
    environment of the driver.
    """
    access_key: Annotated[str | None, values.text] = None
    """The account that requests are signed for, with `secretKey`; else `AEROBEE_ACCESS_KEY` of the
    driver's environment.
    """
    secret_key: Annotated[Secret | None, values.secret] = None
    """Its key; else `AEROBEE_SECRET_KEY`."""
    security_token: Annotated[Secret | None, values.secret] = None
    """Its token, if it has one; else `AEROBEE_SECURITY_TOKEN`."""
    credentials_file: Annotated[str | None, values.text] = None
    """A YAML file with `accessKey` and `secretKey`, on every machine that has tasks: the keys
    are then neither in plans nor sent to tasks.
    """
    tls: bool = False
    """Encrypt the connections to name servers and brokers; `true` when another of these is given,
    or `AEROBEE_TLS` is set.
    """
    tls_ca_file: Annotated[str | None, values.text] = None
    """The trusted certificate authorities in PEM form, on every machine; by default
    `AEROBEE_CA_FILE` or those of the system.
    """
    tls_cert_file: Annotated[str | None, values.text] = None
    """The certificate for brokers that ask for one, or `AEROBEE_CERT_FILE`."""
    tls_key_file: Annotated[str | None, values.text] = None
    """Its key, or `AEROBEE_KEY_FILE`."""
    tls_server_hostname: Annotated[str | None, values.text] = None
    """The name in the certificates of brokers, where it is not the address; or
    `AEROBEE_SERVER_HOSTNAME`.
    """
    namespace: Annotated[str | None, values.namespace] = None
    """The namespace of 4.x clients: topic `T` and group `G` are `ns%T` and `ns%G` for brokers, and
    plain in options and in the column `topic`; or `AEROBEE_NAMESPACE`.
    """

    @property
    def access(self) -> Access:
        """The account, TLS and namespace."""
        return Access(*(getattr(self, name) for name in Access._fields))


def cluster_options(name_server: str) -> ClusterOptions:
    """The options for these name servers, with account, TLS and namespace of the environment."""
    fields: dict[str, Any] = {"name_servers": values.addresses("nameServer", name_server)}
    fill_cluster(fields)
    return ClusterOptions(**fields)


def fill_cluster(fields: dict[str, Any]) -> None:
    """Fill missing options from the environment. Raises: ConfigurationError."""
    if "name_servers" not in fields:
        listed = os.environ.get("NAMESRV_ADDR", "")
        if not listed.strip():
            raise ConfigurationError(
                "option nameServer: give the name servers, as in "
                '.option("nameServer", "host1:9876;host2:9876")'
            )
        fields["name_servers"] = values.addresses("NAMESRV_ADDR", listed)
    _fill_account(fields)
    _fill_tls(fields)
    _fill_from_environment(fields, NAMESPACE)


def _fill_account(fields: dict[str, Any]) -> None:
    """Fill the account of the query from the environment. Raises: ConfigurationError."""
    own = fields.keys() & {*ACCOUNT, "credentials_file"}
    if not own:
        _fill_from_environment(fields, ACCOUNT)
    if "credentials_file" in own and len(own) > 1:
        raise ConfigurationError("option credentialsFile: not together with the keys themselves")
    if ("access_key" in fields) != ("secret_key" in fields):
        raise ConfigurationError("options accessKey, secretKey: one is given without the other")


def _fill_tls(fields: dict[str, Any]) -> None:
    """Fill missing TLS options from the environment. Raises: ConfigurationError."""
    options = [declared.names[0] for declared in _cluster_options(TLS) if declared.field in fields]
    if fields.get("tls", True):
        _fill_from_environment(fields, TLS)
        fields.setdefault("tls", not fields.keys().isdisjoint(TLS))
    elif len(options) > 1:
        raise ConfigurationError(f"option tls: is false, but {options[1]} is given")


def _fill_from_environment(fields: dict[str, Any], variables: Mapping[str, str]) -> None:
    for option in _cluster_options(variables):
        variable = variables[option.field]
        if option.field not in fields and (text := os.environ.get(variable)):
            fields[option.field] = values.value(variable, text, option.hint)


def _cluster_options(fields: Mapping[str, str]) -> list[values.OptionDeclaration]:
    return [option for option in values.declared(ClusterOptions) if option.field in fields]
