"""Tests that ask for `front` run on asyncio, on trio, and blocking, against a real broker."""

from collections.abc import Callable
from itertools import count

import pytest

from tests.aerobee.client.fronts import FRONTS, Front
from tests.conftest import AnyBroker, StartBroker

_numbers = count()


@pytest.fixture(params=FRONTS)
def front_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def anyio_backend(front_name: str) -> str:
    return "trio" if front_name == "trio" else "asyncio"


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker()


@pytest.fixture
def front(front_name: str, broker: AnyBroker) -> Front:
    return Front(front_name, broker.namesrv_address)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """A name that no other test uses."""
    return lambda kind: f"{kind}-{next(_numbers)}"
