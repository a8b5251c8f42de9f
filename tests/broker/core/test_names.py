import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.core import names
from aerobee.broker.errors import NameIllegal, NoPermission

LEGAL = st.text("abcXYZ019%|_-", min_size=1, max_size=120)


@given(LEGAL)
def test_letters_digits_and_four_signs_make_a_name(name: str) -> None:
    assert names.topic_problem(name) is None
    assert names.group_problem(name) is None


@given(st.text(max_size=300))
def test_what_passes_is_never_a_path(name: str) -> None:
    if names.topic_problem(name, stored=True) is None:
        assert not set(name) & set("./\\\0 \n")
        assert 0 < len(name) <= 255


@pytest.mark.parametrize("name", ["", " ", "\t", "a b", "../../x", "a.b", "a\n", "ä", "a@b", "a/b"])
def test_other_characters_are_illegal(name: str) -> None:
    with pytest.raises(NameIllegal) as caught:
        names.check_topic(name)
    assert caught.value.code == 29
    with pytest.raises(NameIllegal):
        names.check_group(name)


def test_the_texts_are_those_that_clients_know() -> None:
    allowed = "^[%|a-zA-Z0-9_-]+$"
    assert names.topic_problem(" ") == "The specified topic is blank."
    assert names.topic_problem("a b") == (
        f"The specified topic contains illegal characters, allowing only {allowed}"
    )
    assert names.topic_problem("a" * 128) == (
        "The specified topic is longer than topic max length."
    )
    assert names.group_problem("a" * 121) == (
        "The specified group is longer than group max length."
    )


def test_a_topic_has_127_characters_and_a_retry_topic_255() -> None:
    assert names.topic_problem("a" * 127) is None
    assert names.topic_problem("%RETRY%" + "a" * 248) is None
    assert names.topic_problem("%DLQ%" + "a" * 250) is None
    assert names.topic_problem("%RETRY%" + "a" * 249) is not None


def test_longer_names_found_in_a_store_are_served() -> None:
    assert names.topic_problem("a" * 255, stored=True) is None
    assert names.group_problem("a" * 121) is not None
    assert names.group_problem("a" * 248, stored=True) is None
    assert names.group_problem("a" * 249, stored=True) is not None
    assert len(names.retry_topic("a" * 248)) == 255


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ],
)
def test_clients_may_not_send_to_the_brokers_own_topics(topic: str) -> None:
    with pytest.raises(NoPermission) as caught:
        names.check_sendable(topic)
    assert caught.value.code == 16
    assert caught.value.remark == f"Sending message to topic[{topic}] is forbidden."


@pytest.mark.parametrize("topic", ["TBW102", "BenchmarkTest", "%RETRY%g", "Orders"])
def test_other_topics_take_messages(topic: str) -> None:
    names.check_sendable(topic)


def test_topics_of_a_group_carry_its_name() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
