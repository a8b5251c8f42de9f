"""The cost of an SQL filter: evaluations a second on one core, and compiling.

    python -m bench.filters

The properties are those of a message from a Java client with two of its own; each row is the best
of many short runs, since the machine is shared. Target: 500,000 a second for three terms.
"""

from __future__ import annotations

import argparse
import timeit

from aerobee.broker.filters.sql_filter import SqlFilter
from bench.arguments import program
from bench.machine import describe

RUNS = 15
SECONDS_PER_RUN = 0.02

PROPERTIES = (
    b"KEYS\x01order-4711\x02UNIQ_KEY\x017F00000100002A9F0000000000000001\x02CLUSTER\x01"
    b"DefaultCluster\x02price\x0142\x02region\x01north\x02TAGS\x01TagA\x02WAIT\x01true\x02"
)
FILTERS = (
    "price > 10",
    "region = 'north' AND price > 10 AND price <= 100",
    "region = 'north' AND price BETWEEN 10 AND 100 AND KEYS IS NOT NULL",
    "region = 'south' OR price > 1.5 OR KEYS STARTSWITH 'order'",
    "region = 'south' AND price > 10 AND price <= 100",
    "region IN ('north', 'south') AND NOT (price > 100) AND TAGS <> 'TagB'",
)


def seconds(action: object) -> float:
    """Of one call, at best."""
    assert callable(action)
    timer = timeit.Timer(action)
    number = max(1, int(SECONDS_PER_RUN / max(timer.timeit(1), 1e-7)))
    return min(timer.repeat(RUNS, number)) / number


@program
def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.filters").parse_args()
    print(describe())
    print("\n| filter | evaluations/s | compile ms |\n|---|---|---|")
    for text in FILTERS:
        matches = SqlFilter(text).matches
        rate = 1 / seconds(lambda matches=matches: matches(PROPERTIES))
        compile_ms = 1000 * seconds(lambda text=text: SqlFilter(text))
        print(f"| `{text}` | {rate:,.0f} | {compile_ms:.2f} |")


if __name__ == "__main__":
    main()
