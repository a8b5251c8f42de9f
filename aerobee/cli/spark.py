"""The commands `aerobee spark JOB`; a job's module is loaded when it is called by name."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from aerobee.cli.lazy import CommandGroup

JOBS = {
    "archive": ("aerobee.spark.jobs.archive", "Full log segments into a table, in time."),
    "audit": ("aerobee.spark.jobs.audit", "Look for damage in a store directory."),
    "replay": ("aerobee.spark.jobs.replay", "Send a range of a topic to another topic."),
    "restore": ("aerobee.spark.jobs.restore", "Messages of an archive back into topics."),
    "stats": ("aerobee.spark.jobs.stats", "Throughput, sizes, latency, delay accuracy."),
    "traces": ("aerobee.spark.jobs.traces", "Message traces: sends joined with consumption."),
}
"""The module of each job, which has a `command`, and its description."""


class Jobs(CommandGroup):
    """A group that imports a job's module when the job is called by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing any of them."""
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The job's command, imported; None for an unknown name."""
        if cmd_name not in JOBS:
            return None
        module = import_module(JOBS[cmd_name][0])
        command: click.Command = module.command
        submit = f"The same on a cluster: spark-submit --master URL {module.__file__} …"
        # Otherwise Spark uses the `python3` of PATH, which may lack Aerobee.
        command.epilog = f"{submit} with PYSPARK_PYTHON={sys.executable}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of jobs, from the table."""
        with formatter.section("Jobs"):
            formatter.write_dl([(name, JOBS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=Jobs, subcommand_metavar="JOB [OPTIONS]", short_help="Run a Spark job.")
def spark() -> None:
    """Run a Spark job, here or on a cluster (`--master`).

    Needs Java 17 and `pip install 'aerobee[spark]'`. Each job's `--help` names its
    file, which spark-submit takes as well.
    """
