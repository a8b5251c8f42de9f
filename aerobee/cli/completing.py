"""Names of topics and groups for a shell that completes: asked of the name server, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

__all__ = ["group_names", "topic_names"]

WITHIN_S = 0.15
"""For the connection, and for the answer: somebody waits at a prompt."""


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The topics that begin so; retry and dead-letter topics only where that is asked for."""
    return [
        name
        for name in known_topics(ctx)
        if name.startswith(incomplete) and (incomplete or not name.startswith("%"))
    ]


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The groups that begin so, as far as they have a retry topic: those that ever consumed."""
    from aerobee.client.system_names import RETRY_PREFIX

    names = (name.removeprefix(RETRY_PREFIX) for name in known_topics(ctx, RETRY_PREFIX))
    return [name for name in names if name.startswith(incomplete)]


def known_topics(ctx: click.Context, prefix: str = "") -> list[str]:
    """The names that the name server knows; none if it does not answer at once."""
    from aerobee.cli.connection import chosen
    from aerobee.errors import AerobeeError

    try:
        given = (ctx.params.get(name) for name in ("namesrv", "context", "namespace"))
        connection = chosen(*given)
        with connection.admin(connect_timeout=WITHIN_S, request_timeout=WITHIN_S) as admin:
            return [name for name in admin.topics() if name.startswith(prefix)]
    except AerobeeError:
        return []
