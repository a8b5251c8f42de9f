"""Calls hooks around sends, handlers and deliveries. An exception of a hook breaks none of them.

Source: client §15.1.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from aerobee.client.handling import call_safely
from aerobee.client.message import check_property
from aerobee.client.steps.producer_batch import PREPARED, dressed
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.hooks import ConsumeContext, SendContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.producer_batch import ProducerBatch
    from aerobee.hooks import Hook

log = logging.getLogger("aerobee.client")


@contextmanager
def around_send(
    hooks: Sequence[Hook], batch: ProducerBatch, group: str, *, oneway: bool = False
) -> Iterator[tuple[ProducerBatch, SendContext]]:
    """A context manager around a send: the batch as changed by hooks, and the send's context."""
    context = SendContext(
        batch.topic,
        group,
        batch.messages,
        batch.uniq_ids,
        oneway=oneway,
        half=bool(batch.sys_flag & PREPARED),
        background=batch.background,
    )
    for hook in hooks:
        call_safely(hook.before_send, context)
    try:
        yield with_properties(batch, context), context
    except AerobeeError as error:
        context.error = error
        raise
    finally:
        for hook in reversed(hooks):
            call_safely(hook.after_send, context)


def with_properties(batch: ProducerBatch, context: SendContext) -> ProducerBatch:
    """The batch with the properties that hooks added, as far as they can be stored."""
    if not context.properties:
        return batch
    kept: dict[str, str] = {}
    for name, value in context.properties.items():
        try:
            check_property(name, value)
        except (ConfigurationError, TypeError) as error:
            log.error("a property of a hook is left out: %s", error)
        else:
            kept[name] = value
    try:
        return dressed(batch, kept)
    except ConfigurationError as error:
        log.error("properties of hooks are left out: %s", error)
        return batch


def before_consume(hooks: Sequence[Hook], context: ConsumeContext) -> None:
    """Call hooks before messages are handled."""
    for hook in hooks:
        call_safely(hook.before_consume, context)


def after_consume(hooks: Sequence[Hook], context: ConsumeContext) -> None:
    """Call hooks after messages were handled."""
    for hook in reversed(hooks):
        call_safely(hook.after_consume, context)


def handed_out(hooks: Sequence[Hook], group: str, messages: Sequence[ReceivedMessage]) -> None:
    """Call hooks for messages that a caller gets, which count as handled."""
    if not hooks:
        return
    for _, of_queue in groupby(messages, attrgetter("queue")):
        context = ConsumeContext(group, list(of_queue), handled=False)
        before_consume(hooks, context)
        after_consume(hooks, context)
