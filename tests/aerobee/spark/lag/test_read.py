"""What brokers say of groups, without Spark: chosen groups and topics, and wrong questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.errors import ConfigurationError, NoNameServerError
from aerobee.spark.lag.read import COLUMNS, arrow_schema, check, read
from aerobee.spark.options import LagOptions, lag_options
from tests.aerobee.spark.filling import make_topic
from tests.aerobee.spark.groups import LAGS, fill_with_groups
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker()
    fill_with_groups(broker)
    return broker


def asked(broker: AnyBroker, **raw: str) -> LagOptions:
    return lag_options({"nameserver": broker.namesrv_address, **raw})


def lags(options: LagOptions) -> dict[tuple[str, str, int], tuple[int, int]]:
    """As LAGS."""
    check(options)
    batch = read(options, tuple(COLUMNS))
    assert batch.schema == arrow_schema(tuple(COLUMNS))
    return {
        (row["group"], row["topic"], row["queueId"]): (row["brokerOffset"], row["consumerOffset"])
        for row in batch.to_pylist()
    }


def test_groups_and_topics_can_be_chosen(broker: AnyBroker) -> None:
    assert lags(asked(broker)) == LAGS
    chosen = lags(asked(broker, groups="lake,shop", topics="bills"))
    assert chosen == {key: at for key, at in LAGS.items() if key[1] == "bills"}
    assert lags(asked(broker, groups="idle")) == {}, "it is there and has read nothing"


def test_a_batch_has_the_columns_that_are_asked_for_in_their_order(broker: AnyBroker) -> None:
    options = asked(broker, groups="shop")
    assert read(options, ("lag", "topic")).to_pylist() == [{"lag": 0, "topic": "bills"}]


def test_a_group_that_nobody_knows_is_named_with_those_that_there_are(broker: AnyBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"no broker knows .* group lke; there are .*lake"):
        check(asked(broker, groups="lake,lke"))


def test_a_topic_that_nobody_knows_is_named_with_those_that_there_are(broker: AnyBroker) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no broker knows a topic orrs; there are .*bills"
    ):
        check(asked(broker, topics="orders,orrs"))


def test_a_name_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(NoNameServerError, match=r"127\.0\.0\.1:1"):
        read(lag_options({"nameserver": "127.0.0.1:1"}), ("lag",))


def test_a_group_that_only_one_broker_knows_has_its_lag_there(
    broker: AnyBroker, tmp_path: Path
) -> None:
    settings = {"brokerName": "broker-2"}
    with BrokerProcess(
        data=tmp_path / "second", settings=settings, namesrv=broker.namesrv_address
    ) as second:
        make_topic(second, "orders", 2)
        options = asked(broker, groups="shop")
        check(options)
        assert read(options, ("topic", "lag")).to_pylist() == [{"topic": "bills", "lag": 0}]
