"""Errors and messages go from process to process by pickle, whole."""

import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

import pytest

import aerobee
from aerobee import BatchFailed, Message, MessageQueue, ReceivedMessage, Reject, RetryLater
from aerobee import errors as tree
from aerobee.errors import Attempt
from tests.aerobee.client.steps.test_held_queue import message

ROOMS = ("errors", "client", "admin", "spark", "cli", "testing", "hooks")


def exceptions() -> list[type[BaseException]]:
    """Every exception class of what users import and run."""
    found = set()
    for module in pkgutil.walk_packages(aerobee.__path__, "aerobee."):
        if module.name.split(".")[1] in ROOMS and not module.name.endswith("__main__"):
            found |= {
                one
                for one in vars(import_module(module.name)).values()
                if isinstance(one, type)
                and issubclass(one, BaseException)
                and one.__module__.startswith(tuple(f"aerobee.{room}" for room in ROOMS))
            }
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


@pytest.mark.parametrize("kind", exceptions(), ids=lambda one: one.__qualname__)
def test_every_exception_class_pickles_whatever_its_constructor_takes(
    kind: type[BaseException],
) -> None:
    error = kind.__new__(kind, 1)
    error.__dict__.update(topic="orders", level=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.args == error.args
    assert vars(again).items() >= vars(error).items()


@pytest.mark.parametrize(
    "error",
    [
        RetryLater(3, suspend=1.5),
        Reject(),
        BatchFailed([1, 2]),
        tree.RequestTimeoutError("late").about(topic="a", broker="b"),
        tree.BrokerBusyError(2, "busy", "b", "1.1.1.1:1", "SEND", "t"),
        tree.SendFailedError("a send", [Attempt("b", tree.ConnectError("nobody"))], "t"),
        tree.UndeliveredError([(Message("t", b"x"), tree.ConnectError("nobody"))]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_copy_says_and_knows_what_the_error_does(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), repr(again)) == (str(error), repr(error))
    assert repr(vars(again)) == repr(vars(error))


def work(number: int) -> int:
    if number == 1:
        raise RetryLater(2)
    return number


def test_a_process_pool_outlives_an_error_of_a_worker() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(work, 0).result() == 0
        with pytest.raises(RetryLater) as raised:
            pool.submit(work, 1).result()
        assert raised.value.level == 2
        assert pool.submit(work, 2).result() == 2


def test_messages_pickle_and_received_ones_can_be_in_sets() -> None:
    sent = Message("T", b"x", keys=["k"], properties={"a": "b"})
    assert pickle.loads(pickle.dumps(sent)) == sent
    one, other = message(1), message(2)
    again: ReceivedMessage = pickle.loads(pickle.dumps(one))
    assert again == one
    assert len({one, again, other}) == 2
    assert hash(MessageQueue("T", "b", 0)) == hash(MessageQueue("T", "b", 0))
