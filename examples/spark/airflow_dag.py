"""An Airflow DAG: audit a store directory, then the report; dead letters are sent again by hand.

The second DAG has no schedule: a person starts it and says which group, after looking at the table.
"""

from datetime import datetime

from airflow import DAG
from airflow.operators.bash import BashOperator

START = datetime(2025, 1, 1)  # noqa: DTZ001 - Airflow takes it in its own time zone
ENVIRONMENT = {"NAMESRV_ADDR": "127.0.0.1:9876"}

with DAG("aerobee_nightly", start_date=START, schedule="0 3 * * *", catchup=False):
    audit = BashOperator(
        task_id="audit",
        bash_command="aerobee spark audit /srv/rocketmq --output /srv/lake/audit --mode overwrite",
        # 3 is damage: no second try makes it better.
        retries=0,
    )
    report = BashOperator(
        task_id="report",
        # By the clock: what `ds` is, yesterday or today, depends on the version of Airflow.
        bash_command=(
            'aerobee spark report "/srv/www/$(date -d yesterday +%F).html"'
            ' --since "$(date -d yesterday +%F)" --until "$(date +%F)"'
        ),
        env=ENVIRONMENT,
        append_env=True,
        retries=2,
    )
    audit >> report

with DAG("aerobee_redrive", start_date=START, schedule=None, params={"group": "billing"}):
    BashOperator(
        task_id="redrive",
        bash_command=(
            "aerobee spark dead-letters --group {{ params.group }} --redrive --yes"
            " --record /srv/lake/redriven"
        ),
        env=ENVIRONMENT,
        append_env=True,
        # Sending is at-least-once; the record keeps a second try from sending all again.
        retries=1,
    )
