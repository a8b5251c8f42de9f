"""Job `audit`: checks every record of a store directory, on all cores.

`aerobee store verify` checks more, and more kinds of files, in one process; this job is for
directories of hundreds of gigabytes and for tables that a dashboard reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from aerobee.cli.border import DONE, STORE_REFUSED
from aerobee.cli.output import echo
from aerobee.spark.jobs.common import output_options, pairs, run_as_program, session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aerobee.spark.jobs.common import Output, Session

NO_DAMAGE = ("tail",)
"""Kinds of findings that a running broker, or its next start, repairs."""


def summary(findings: DataFrame) -> DataFrame:
    """Findings per kind and topic: their number, the first and the last location."""
    from pyspark.sql import functions as sql

    return (
        findings.groupBy("kind", "topic")
        .agg(
            sql.count("*").alias("findings"),
            sql.min("physicalOffset").alias("firstPhysicalOffset"),
            sql.max("physicalOffset").alias("lastPhysicalOffset"),
        )
        .orderBy("kind", "topic")
    )


@click.command("audit", short_help="Look for damage in a store directory.")
@click.argument("directory")
@click.option("--summary", "wants_summary", is_flag=True, help="A row per kind and topic.")
@click.option("--option", multiple=True, metavar="KEY=VALUE", help="Of format aerobee.store.")
@output_options
@session_options
def command(
    *,
    directory: str,
    wants_summary: bool,
    option: tuple[str, ...],
    output: Output,
    session: Session,
) -> int:
    """Look for damage in DIRECTORY: records, their numbers, and what consume queues say of them.

    Exit code 3 where damage is found.
    """
    options = {"path": directory, "mode": "audit"} | pairs(option, "--option")
    with session.opened("audit") as spark:
        output.check(spark, directory)
        findings = spark.read.format("aerobee.store").options(**options).load()
        # Computed once, although it is counted and shown.
        findings = findings.persist()
        try:
            damage = findings.where(~findings.kind.isin(*NO_DAMAGE)).count()
            order = ("segment", "physicalOffset", "topic", "queueId", "queueOffset")
            output.deliver(summary(findings) if wants_summary else findings.orderBy(*order))
        finally:
            findings.unpersist()
    echo(f"{damage} findings of damage" if damage else "sound", err=True)
    return STORE_REFUSED if damage else DONE


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the job and exit with its code."""
    run_as_program(command, arguments)


if __name__ == "__main__":
    main()
