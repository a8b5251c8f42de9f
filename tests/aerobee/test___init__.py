"""What `import aerobee` promises, and what it must not drag in."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

import pytest

import aerobee
import aerobee.blocking

CHECK = """
import sys
{code}
heavy = {heavy!r}
print([name for name in sys.modules if name.split(".")[0] in heavy or name in heavy])
"""


def loaded(code: str, *heavy: str) -> str:
    program = CHECK.format(code=code, heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            "import aerobee",
            ("anyio", "trio", "aerobee.broker", "aerobee.store", "aerobee.remoting", "msgspec"),
        ),
        ("from aerobee import arrow", ("pyarrow", "numpy", "pyspark", "anyio", "aerobee.remoting")),
        (
            "from aerobee import Producer, PullConsumer",
            ("trio", "aerobee.broker", "structlog", "rich"),
        ),
        (
            "from aerobee import Producer",
            ("aerobee.store.files", "aerobee.store.log", "aerobee.store.message_store"),
        ),
        ("from aerobee.blocking import Producer, PullConsumer", ("anyio", "asyncio", "trio")),
        (
            "import aerobee.cli.main",
            ("anyio", "rich", "aerobee.broker", "aerobee.remoting", "aerobee.store", "msgspec"),
        ),
        (
            "import aerobee.cli.broker",
            ("anyio", "rich", "aerobee.remoting", "trio", "aerobee.blocking"),
        ),
        *(
            (
                f"import aerobee.cli.{name}",
                ("anyio", "rich", "aerobee.remoting", "aerobee.blocking"),
            )
            for name in ("consume", "group", "message", "produce", "top", "topic")
        ),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(code: str, heavy: tuple[str, ...]) -> None:
    assert loaded(code, *heavy) == "[]"


def test_the_version_is_that_of_the_distribution() -> None:
    assert aerobee.__version__ == version("aerobee")


def test_every_promised_name_is_there() -> None:
    for name in aerobee.__all__:
        assert getattr(aerobee, name).__name__ == name
    assert set(dir(aerobee)) == set(aerobee.__all__)
    with pytest.raises(AttributeError):
        aerobee.NoSuchThing  # noqa: B018 (the access is the point)


def test_the_blocking_front_has_the_same_names() -> None:
    # What reads into Arrow waits for nobody: it has one front.
    assert set(aerobee.blocking.__all__) == set(aerobee.__all__) - {"arrow", "arrow_reader"}


FRONTED = ("AdminClient", "Client", "Producer", "PullConsumer")
RENAMED = {"aclose": "close", "working_group": "check_works"}
OF_TASKS = {"start_worker", "closes_here", "see_through"}
"""Threads are started by the consumers that need them, belong to no loop and are not cancelled."""


@pytest.mark.parametrize("name", FRONTED)
def test_both_fronts_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    async_methods = {RENAMED.get(k, k): v for k, v in methods(getattr(aerobee, name)).items()}
    blocking_methods = methods(getattr(aerobee.blocking, name))
    assert async_methods.keys() - OF_TASKS == blocking_methods.keys()
    for method in blocking_methods:
        made = async_methods[method]
        parameters = dict(inspect.signature(made).parameters)
        # Only tasks need a place to run in.
        parameters.pop("task_group", None)
        others = inspect.signature(blocking_methods[method]).parameters
        assert [str(p).replace("blocking.", "") for p in parameters.values()] == [
            str(p).replace("blocking.", "") for p in others.values()
        ], method


def methods(made: type) -> dict[str, Callable[..., object]]:
    return {
        name: value
        for name, value in inspect.getmembers(made, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }
