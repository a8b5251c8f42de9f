"""Renders the report: rows in, one self-contained HTML file out. Pure.

Each chart has a folded table of its numbers below it. The page is light or dark as the reader's
system is; on paper it is light.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from aerobee.spark.jobs.charts import bars, bytes_text, count_text, duration_text, over_time
from aerobee.spark.jobs.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS_SHOWN = 5
"""The topics with a colour of their own in the throughput; the others share one area."""
BARS_SHOWN = 12
ROWS_SHOWN = 200
"""The most rows of a folded table; the job's table has all."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The data of the page; rows as `stats`, `dead-letters` and `format("aerobee.lag")` have them.

    `lag` and `dead_letters` are None without a cluster to query, empty without any rows.
    """

    title: str
    place: str
    made_at: datetime
    window_ms: int
    rates: Sequence[Row] = ()
    """Rows per window and topic."""
    totals: Sequence[Row] = ()
    """Rows per window, all topics together."""
    topics: Sequence[Row] = ()
    """Rows per topic, the whole time together."""
    delays: Sequence[Row] = ()
    lag: Sequence[Row] | None = None
    dead_letters: Sequence[Row] | None = None
    notes: Sequence[str] = field(default_factory=tuple)


def windows_ms(rows: Sequence[Row], window_ms: int) -> list[int]:
    """The starts of all windows from the first to the last row, including empty ones."""
    starts = [_ms(row["windowStart"]) for row in rows]
    return list(range(min(starts), max(starts) + 1, window_ms)) if starts else []


def render(report: Report) -> str:
    """Render the whole page."""
    title = escape(report.title)
    sections = (
        _throughput(report),
        _latency(report),
        _topics(report),
        _sizes(report),
        _lag(report),
        _dead_letters(report),
        _delays(report),
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in report.notes)
    made = report.made_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{title}</h1><p>{escape(report.place)} · {_span(report)}</p></header>\n"
        f"{_tiles(report)}{notes}\n"
        f'<div class="sections">{"".join(filter(None, sections))}</div>\n'
        f"<footer>Aerobee · made {made} · times are UTC</footer>\n</main>\n</body>\n</html>\n"
    )


# ── Parts ──


def _tiles(report: Report) -> str:
    """The most important numbers, as tiles at the top."""
    messages = sum(row["messages"] for row in report.topics)
    size = sum(row["bytes"] or 0 for row in report.topics)
    peak = max((row["messagesPerSecond"] for row in report.totals), default=0.0)
    late = [row["latencyP99Ms"] for row in report.totals if row["latencyP99Ms"] is not None]
    tiles = [
        ("messages", count_text(messages), f"in {len(report.topics)} topics"),
        ("stored", bytes_text(size), f"{bytes_text(size / messages)} each" if messages else ""),
        ("peak", f"{count_text(peak)}/s", f"per {duration_text(report.window_ms)}"),
        ("worst p99", duration_text(max(late)) if late else "–", "born to stored"),
    ]
    if report.lag is not None:
        behind = sum(max(0, row["lag"] or 0) for row in report.lag)
        tiles.append(("behind", count_text(behind), "messages, all groups"))
    if report.dead_letters is not None:
        dead = sum(row["messages"] for row in report.dead_letters)
        tiles.append(("dead letters", count_text(dead), "given up by their groups"))
    shown = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b>'
        f"<small>{escape(more)}</small></div>"
        for name, value, more in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _throughput(report: Report) -> str:
    times = windows_ms(report.rates, report.window_ms)
    if not times:
        return _section("Throughput", "", '<p class="empty">No messages in this time.</p>', "")
    by_topic: dict[str, dict[int, float]] = defaultdict(dict)
    for row in report.rates:
        by_topic[row["topic"]][_ms(row["windowStart"])] = row["messagesPerSecond"]
    largest = sorted(by_topic, key=lambda topic: -sum(by_topic[topic].values()))
    shown, rest = largest[:TOPICS_SHOWN], largest[TOPICS_SHOWN:]
    series = {topic: [by_topic[topic].get(at, 0.0) for at in times] for topic in shown}
    if rest:
        name = f"{len(rest)} more"
        series[name] = [sum(by_topic[topic].get(at, 0.0) for topic in rest) for at in times]
    picture = over_time(*_seen(times, series, report), _rate, stacked=True)
    columns = ("windowStart", "topic", "messages", "messagesPerSecond", "bytesPerSecond")
    table = _table(report.rates, columns)
    return _section("Throughput", "messages per second", picture, table, "wide")


def _latency(report: Report) -> str:
    times = windows_ms(report.totals, report.window_ms)
    if not any(row["latencyP50Ms"] is not None for row in report.totals):
        return ""
    rows = {_ms(row["windowStart"]): row for row in report.totals}
    names = {"p50": "latencyP50Ms", "p90": "latencyP90Ms", "p99": "latencyP99Ms"}
    series = {
        name: [rows[at][column] if at in rows else None for at in times]
        for name, column in names.items()
    }
    picture = over_time(*_seen(times, series, report), duration_text, log=True)
    about = "born to stored, without delayed messages and retries; log scale"
    table = _table(report.totals, ("windowStart", *names.values(), "latencyMaxMs"))
    return _section("Latency", about, picture, table)


def _topics(report: Report) -> str:
    largest = sorted(report.topics, key=lambda row: -row["messages"])
    columns = ("topic", "messages", "bytes", "sizeMean", "latencyP50Ms", "latencyP99Ms")
    return _ranking(
        ("Topics", "messages", 0),
        [(row["topic"], row["messages"], count_text(row["messages"])) for row in largest],
        _table(report.topics, columns),
    )


def _sizes(report: Report) -> str:
    largest = sorted(report.topics, key=lambda row: -(row["bytes"] or 0))
    columns = ("topic", "bytes", "sizeMean", "sizeP50", "sizeP99", "sizeMax")
    return _ranking(
        ("Sizes", "bytes of whole records", 2),
        [
            (
                row["topic"],
                row["bytes"] or 0,
                f"{bytes_text(row['bytes'] or 0)} · p99 {bytes_text(row['sizeP99'] or 0)}",
            )
            for row in largest
        ],
        _table(report.topics, columns),
    )


def _lag(report: Report) -> str:
    if report.lag is None:
        return ""
    behind = sorted(report.lag, key=lambda row: -(row["lag"] or 0))
    return _ranking(
        ("Lag", "messages that a group has not consumed yet", 3),
        [(f"{row['group']} ← {row['topic']}", row["lag"] or 0, _behind(row)) for row in behind],
        _table(report.lag, ("group", "topic", "lag", "timeLagMs", "queues")),
        '<p class="empty">No consumer groups.</p>',
    )


def _dead_letters(report: Report) -> str:
    if report.dead_letters is None:
        return ""
    columns = ("group", "origin", "tags", "why", "tries", "messages", "first", "last")
    return _ranking(
        ("Dead letters", "messages that a group gave up", 4),
        [
            (
                " · ".join(filter(None, (f"{row['group']} ← {row['origin'] or '?'}", row["tags"]))),
                row["messages"],
                f"{count_text(row['messages'])} · {_tries(row['tries'])}",
            )
            for row in report.dead_letters
        ],
        _table(report.dead_letters, columns),
        '<p class="empty good">None.</p>',
    )


def _delays(report: Report) -> str:
    columns = ("topic", "delay", "messages", "lateMinMs", "lateP50Ms", "lateP99Ms", "lateMaxMs")
    return _ranking(
        ("Delays", "how late delayed messages came, behind the time they asked for", 1),
        [
            (
                f"{row['topic']} · {row['delay']}",
                row["lateP99Ms"],
                f"p99 {duration_text(row['lateP99Ms'])}",
            )
            for row in report.delays
        ],
        _table(report.delays, columns),
    )


# ── Elements ──


def _ranking(
    head: tuple[str, str, int], shown: Sequence[tuple[str, float, str]], table: str, empty: str = ""
) -> str:
    """A section with a bar chart, given its title, description and colour; empty without rows."""
    name, about, colour = head
    if not shown:
        return _section(name, about, empty, "") if empty else ""
    return _section(name, about, bars(shown[:BARS_SHOWN], colour), table)


def _section(name: str, about: str, picture: str, table: str, more: str = "") -> str:
    said = f"<p>{escape(about)}</p>" if about else ""
    folded = f"<details><summary>numbers</summary>{table}</details>" if table else ""
    return f'<section class="{more}"><h2>{escape(name)}</h2>{said}{picture}{folded}</section>\n'


def _table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as an HTML table; numbers are right-aligned."""
    head = "".join(f"<th>{escape(_heading(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(_cell(column, row.get(column)) for column in columns) + "</tr>"
        for row in rows[:ROWS_SHOWN]
    )
    more = len(rows) - ROWS_SHOWN
    left = f'<p class="note">{more} more rows in the table of the job.</p>' if more > 0 else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"</div>{left}"
    )


def _heading(column: str) -> str:
    """Format `latencyP99Ms` as `latency P99`, `bytesPerSecond` as `bytes/s`."""
    plain = column.removesuffix("Ms").replace("PerSecond", "/s")
    return "".join(f" {c}" if c.isupper() else c for c in plain)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, datetime):
        return f"<td>{value.strftime('%Y-%m-%d %H:%M:%S')}</td>"
    if isinstance(value, int | float):
        return f'<td class="number">{escape(_number(column, value))}</td>'
    return f"<td>{escape(str(value))}</td>"


def _number(column: str, value: float) -> str:
    if column.endswith("Ms"):
        return duration_text(value)
    if column.startswith(("bytes", "size")):
        return bytes_text(value) + ("/s" if column.endswith("PerSecond") else "")
    return f"{value:,}" if isinstance(value, int) else count_text(value)


def _behind(row: Row) -> str:
    late = row.get("timeLagMs")
    return count_text(max(0, row["lag"] or 0)) + (f" · {duration_text(late)}" if late else "")


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def _rate(value: float) -> str:
    return f"{count_text(value)}/s"


def _span(report: Report) -> str:
    times = windows_ms(report.totals, report.window_ms)
    if not times:
        return "no messages"
    first, last = (
        datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
        for at in (times[0], times[-1] + report.window_ms)
    )
    return f"{first} to {last}"


def _seen(
    times: Sequence[int], series: dict[str, list[Any]], report: Report
) -> tuple[Sequence[int], dict[str, list[Any]]]:
    """The points of the lines; a single window gets a second point at its end, to be visible."""
    if len(times) > 1:
        return times, series
    doubled = {name: values * 2 for name, values in series.items()}
    return [times[0], times[0] + report.window_ms], doubled


def _ms(at: datetime) -> int:
    """Convert Spark's naive times of a UTC session, or times with a zone, to ms."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000)
