"""Names of topics, groups and users for shell completion: asked of the servers, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from aerobee.blocking import AdminClient

WITHIN_S = 0.15
"""Timeout of the connection, and of the answer: a user waits at the prompt."""


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Topics with this prefix; retry and dead-letter topics only after a typed `%`."""
    return [
        name
        for name in known_topics(ctx)
        if name.startswith(incomplete) and (incomplete or not name.startswith("%"))
    ]


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Groups with this prefix that have a retry topic, that is, that ever consumed."""
    from aerobee.store.format.system_names import RETRY_PREFIX

    names = (name.removeprefix(RETRY_PREFIX) for name in known_topics(ctx, RETRY_PREFIX))
    return [name for name in names if name.startswith(incomplete)]


def user_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Users with this prefix, of any broker."""
    names = set(asked(ctx, lambda admin: [user.name for user in admin.users()]))
    return sorted(name for name in names if name.startswith(incomplete))


def known_topics(ctx: click.Context, prefix: str = "") -> list[str]:
    """The names that the name server knows; none if it does not answer at once."""
    return [name for name in asked(ctx, lambda admin: admin.topics()) if name.startswith(prefix)]


def asked(ctx: click.Context, names: Callable[[AdminClient], list[str]]) -> list[str]:
    """The names that the servers of a command line tell; none if they do not answer at once."""
    from aerobee.cli.connection import chosen
    from aerobee.errors import AerobeeError

    try:
        parameters = (ctx.params.get(name) for name in ("namesrv", "context", "namespace"))
        connection = chosen(*parameters)
        with connection.admin(connect_timeout=WITHIN_S, request_timeout=WITHIN_S) as admin:
            return names(admin)
    except AerobeeError:
        return []
