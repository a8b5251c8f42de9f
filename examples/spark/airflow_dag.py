"""An Airflow DAG: audit a store directory, then statistics; dead letters are sent again by hand.

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
    stats = BashOperator(
        task_id="stats",
        # By the clock: what `ds` is, yesterday or today, depends on the version of Airflow.
        bash_command=(
            "aerobee spark stats --topic orders --window 1h --output /srv/lake/stats --mode append"
            ' --since "$(date -d yesterday +%F)" --until "$(date +%F)"'
        ),
        env=ENVIRONMENT,
        append_env=True,
        retries=2,
    )
    audit >> stats

with DAG("aerobee_redrive", start_date=START, schedule=None, params={"group": "billing"}):
    BashOperator(
        task_id="redrive",
        bash_command="aerobee dlq redrive {{ params.group }} --yes",
        env=ENVIRONMENT,
        append_env=True,
        # Messages that were sent are noted: a second try does not send them again.
        retries=1,
    )
