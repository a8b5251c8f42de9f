"""A metric: its name, kind and labels, and how it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from aerobee.store.stats import Durations

    Reading: TypeAlias = tuple[tuple[str, ...] | None, float | Durations]
    """Label values in the order of the metric's labels, and the value. None instead of labels: the
    overflow of series, counted together."""

SourcesT = TypeVar("SourcesT", contravariant=True)


def one(
    read: Callable[[SourcesT], float | Durations], *labels: str
) -> Callable[[SourcesT], Iterator[Reading]]:
    """A figure with one series."""

    def read_one(sources: SourcesT) -> Iterator[Reading]:
        yield labels, read(sources)

    return read_one


Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple, Generic[SourcesT]):
    """One metric; `labels` are those beyond the common ones."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Callable[[SourcesT], Iterable[Reading]]


def single(
    name: str, kind: Kind, text: str, read: Callable[[SourcesT], float | Durations]
) -> Metric[SourcesT]:
    """A metric of one series, without labels of its own."""
    return Metric(name, kind, (), text, one(read))
