"""The command `aerobee top`: a live view of a cluster."""

from __future__ import annotations

import os
import re
import select
import sys
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.cluster import broker_rows, connected, described, for_people, uptime
from aerobee.cli.connection import Connection, connection_options, tell_outages
from aerobee.cli.dead import Look, end_with_all, leave_dead_out
from aerobee.cli.options import SECONDS_MAX, Number
from aerobee.cli.output import Output, escaped, output_options, table_of
from aerobee.cli.top_view import HELP, SORTED_BY, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import ConsoleDimensions, Group

    from aerobee.blocking import AdminClient

ROWS_MIN = 5
FRAME_LINES = 10
"""The lines of the screen for titles and help."""

UNCHANGED = ("id", "version", "aerobee")
HOUR_SAMPLES_S = 600
"""Between two samples of the last hour, which brokers keep."""
NO_STATISTIC = "not exist"
"""In the remark for a counter that nothing has counted yet."""

Row = dict[str, Any]


@click.command(
    short_help="A cluster live: rates, lag, connections.", epilog=f"Keys on a terminal: {HELP}."
)
@click.option(
    "--interval", type=Number(0.2, SECONDS_MAX), default=1.0, show_default=True, help="Seconds."
)
@click.option(
    "--view",
    type=click.Choice(list(SORTED_BY)),
    default="groups",
    show_default=True,
    help="What is shown below the brokers.",
)
@click.option("--sort", metavar="COLUMN", default="", help="Else what is most at the top.")
@click.option("--filter", "pattern", metavar="TEXT", default="", help="Only rows with this text.")
@click.option("--hour", is_flag=True, help="Rates of the last hour; of groups what comes and goes.")
@click.option("--once", is_flag=True, help="Print it once and end; so in a pipe.")
@connection_options
@output_options
def top(
    interval: float,
    view: str,
    sort: str,
    pattern: str,
    hour: bool,
    once: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Show brokers, and groups, topics or connections, until Ctrl-C or q.

    With --hour a group that consumes less than comes in fell behind in the last hour. A broker has
    such rates from its tenth minute on; before, they are unknown.
    """
    tell_outages()
    chosen = View(view, sort, pattern=pattern)
    with connection.admin() as admin:
        if not (once or output.for_programs) and sys.stdout.isatty():
            live(admin, interval, chosen, hour)
            return
        look = leave_dead_out(admin)
        brokers, looked = broker_rows(look), ROWS[view](admin, look, hour)
        check_column(sort, looked)
        rows = chosen.arranged(looked)
        if output.for_programs:
            output.record({"brokers": brokers, view: rows})
        else:
            output.rows(for_people(row, output) for row in brokers)
            output.rows(rows)
        end_with_all(look)


def check_column(name: str, rows: Sequence[Row]) -> None:
    """Refuse an unknown column for sorting. Raises: UsageError."""
    if name and rows and name not in rows[0]:
        raise click.UsageError(f"--sort {name}: the columns are {', '.join(rows[0])}")


# ── Rows ──


def groups(admin: AdminClient, look: Look, hour: bool) -> list[Row]:
    """Consumer groups; with `hour` what came into their topics and what they were given."""
    from aerobee.cli.group import summary
    from aerobee.client.system_names import is_system_group

    names = (name for name in admin.groups() if not is_system_group(name))
    rows = [summary(admin, name, look.masters) for name in names]
    for row in rows if hour else ():
        group, of = row["group"], row["topics"]
        row["in_per_s"] = over_hour(admin, look, "TOPIC_PUT_NUMS", of)
        got = [f"{topic}@{group}" for topic in of]
        row["out_per_s"] = over_hour(admin, look, "GROUP_GET_NUMS", got)
    return rows


def over_hour(admin: AdminClient, look: Look, statistic: str, keys: Sequence[str]) -> float | None:
    """The rate of counters over the last hour; None where a broker cannot tell it."""
    if look.masters or look.refusing or any(young(stats) for _, stats in look.alive):
        return None
    brokers = [broker.name for broker, _ in look.alive if broker.is_master]
    return sum(rate(admin, statistic, key, broker, hour=True) for broker in brokers for key in keys)


def young(stats: dict[str, str]) -> bool:
    """Whether a broker runs for less time than lies between two samples of the hour."""
    return (uptime(stats.get("runtime")) or 0) < HOUR_SAMPLES_S


def topics(admin: AdminClient, look: Look, hour: bool) -> list[Row]:
    """Topics with their send rates over the last minute, at the brokers that answer, or hour."""
    from aerobee.cli.topic import of_users

    if hour:
        return [
            {
                "topic": name,
                "in_per_s": over_hour(admin, look, "TOPIC_PUT_NUMS", [name]),
                "bytes_per_s": over_hour(admin, look, "TOPIC_PUT_SIZE", [name]),
            }
            for name in of_users(admin)
        ]
    brokers = {broker.name for broker, _ in look.alive if broker.is_master}
    return [
        {
            "topic": name,
            "in_per_s": sum(rate(admin, "TOPIC_PUT_NUMS", name, broker) for broker in brokers),
            "bytes_per_s": sum(rate(admin, "TOPIC_PUT_SIZE", name, broker) for broker in brokers),
        }
        for name in of_users(admin)
    ]


def rate(admin: AdminClient, statistic: str, key: str, broker: str, *, hour: bool = False) -> float:
    """The rate of a counter per second; 0 if it has no data yet. Raises: other BrokerErrors."""
    from aerobee.errors import BrokerError

    try:
        item = admin.stats_item(statistic, key, broker)
        return (item.hour if hour else item.minute).per_second
    except BrokerError as error:
        if NO_STATISTIC not in (error.remark or ""):
            raise
        return 0.0


def connections(admin: AdminClient, look: Look, hour: bool) -> list[Row]:
    """The connected consumers and producers."""
    return [described(*member) for member in connected(admin, None, tell=False)]


ROWS: dict[str, Callable[[AdminClient, Look, bool], list[Row]]] = {
    "groups": groups,
    "topics": topics,
    "connections": connections,
}


# ── Live view ──


def live(admin: AdminClient, interval: float, view: View, hour: bool) -> None:
    """Redraw periodically and after each key; an outage is shown as a line and retried."""
    from rich.live import Live
    from rich.text import Text

    from aerobee.errors import AerobeeError

    try:
        with Live(screen=True, auto_refresh=False) as screen, keys_pressed() as pressed:
            while True:
                try:
                    look = leave_dead_out(admin)
                    brokers = [of_screen(row) for row in broker_rows(look)]
                    rows = ROWS[view.name](admin, look, hour)
                except AerobeeError as error:
                    screen.update(Text(escaped(str(error))), refresh=True)
                    brokers, rows = [], []
                name, again_at = view.name, monotonic() + interval
                while view.name == name and (left := again_at - monotonic()) > 0:
                    if brokers:
                        size = screen.console.size
                        screen.update(drawn(brokers, rows, view, size), refresh=True)
                    for key in pressed(left):
                        if not view.press(key, list(rows[0]) if rows else []):
                            return
    except KeyboardInterrupt:
        pass


def of_screen(row: Row) -> Row:
    """A broker on the screen: what does not change while one looks is left to `cluster info`."""
    kept = {name: value for name, value in row.items() if name not in UNCHANGED}
    return for_people(kept, Output())


def drawn(brokers: list[Row], rows: list[Row], view: View, size: ConsoleDimensions) -> Group:
    """A screen: the brokers, as many rows and columns as fit, and the keys."""
    from rich.console import Group
    from rich.text import Text

    room = max(ROWS_MIN, size.height - len(brokers) - FRAME_LINES)
    wanted = view.arranged(rows)
    tables = [
        table_of(view.fitting(shown, size.width), width=size.width)
        for shown in (brokers, wanted[:room])
        if shown
    ]
    more = f"{len(wanted) - room} more · " if len(wanted) > room else ""
    return Group(*tables, Text(more + view.line, style="dim"))


# ── Keys ──


ONE_KEY = re.compile(r"\x1b\[[A-D]|.", re.DOTALL)
READ_BYTES = 64


@contextmanager
def keys_pressed() -> Iterator[Callable[[float], list[str]]]:
    """A function that waits so many seconds for keys, one by one and unseen; Ctrl-C stays Ctrl-C.

    Without a terminal for input it just waits. The terminal's mode is restored.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield _read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> list[str]:
    sleep(seconds)
    return []


def _read(seconds: float) -> list[str]:
    terminal = sys.stdin.fileno()
    if not select.select([terminal], [], [], seconds)[0]:
        return []
    return ONE_KEY.findall(os.read(terminal, READ_BYTES).decode(errors="replace"))
