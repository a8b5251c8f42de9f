"""What every test may ask for: a running broker, ours unless told otherwise.

`--against java-5.5.0` runs the outside-in tests against the Java broker instead: a test that fails
there, too, tests something else than RocketMQ. `--cycles` and `--seed` are for the campaigns.
"""

import gc
import os
import re
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, Protocol

import hypothesis
import pytest
import structlog
from structlog.testing import capture_logs

from aerobee.store.files.machine import Machine, Space
from aerobee.store.format import record
from tests.kit.broker_process import BrokerProcess, is_of_the_machine
from tests.kit.faulty_disk import Fault, unmet
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.logged import Logged
from tests.kit.ports import PortBlock
from tests.kit.tls import Certificate, certificate
from tests.kit.virtual_time import let_threads_finish

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

OURS = "aerobee"
JAVA = "java-"

# Without compiled files of their modules children start late, and hold what compiling took.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that runs us in the background makes Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


let_threads_finish()

# A traceback that rich draws, with the values of all frames, takes half a second.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback


class AnyBroker(Protocol):
    """One broker on one data directory, run after run: `BrokerProcess` or `JavaBroker`."""

    data: Path
    ports: PortBlock

    @property
    def address(self) -> str: ...
    @property
    def namesrv_address(self) -> str: ...
    def start(self) -> object: ...
    def stop(self) -> int: ...
    def kill(self) -> int: ...
    def restart(self) -> object: ...


SHARED_JAVA: dict[str, object] = {
    # As ours always. Without it Java's brokers of 5.x neither pop nor delete topics.
    "timerWheelEnable": True,
    "recallMessageEnable": True,
    "messageDelayLevel": "1s 1s 1s 1s",
}
"""What tests ask of the brokers that they share. One of Java's has all of it: it takes ten seconds
to start."""

NEEDS_PURE = Path(__file__).parents[1] / "deploy/compiled/needs_pure.txt"
"""Tests that a compiled build skips, with why."""

LONG = ("interop", "faults")
"""Marks of tests that take seconds, not milliseconds."""

SHARED_OUT = ("tests/faults/test_campaigns.py",)
"""Files whose tests share nothing and take long: workers of xdist take one each, not the file."""

TOGETHER = {
    # They share JVMs.
    "tests/interop": re.compile(r"\b(GetClient|JavaClient|java_namesrv)\b"),
    # They share the trees of all sources, which take seconds to parse.
    "tests": re.compile(r"\bsource_tree\b"),
}
"""Files of a folder that name this: one worker takes all of them."""

PARTS_OF_THEIR_OWN = ("alone", "spark")
"""Marks whose tests tests/suite.py finds by the text of their files."""

StartBroker = Callable[..., AnyBroker]

WITHIN_S = 360.0
"""No test takes half of this, whatever runs beside it, but the first that has Maven fetch Java."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--against", default=OURS, help="aerobee, java-5.5.0 or java-4.9.7")
    parser.addoption("--cycles", default=None, type=int, help="cycles of each campaign")
    parser.addoption("--seed", default=1, type=int, help="of each campaign")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ours: says what only our broker does")
    config.addinivalue_line("markers", "since(version): of RocketMQ, whose brokers do it first")
    # How long an example takes says something of the machine, and nothing of the code. In CI the
    # examples are the same each time: what a change did not touch does not stop it.
    alike = bool(os.environ.get("AEROBEE_CI"))
    hypothesis.settings.register_profile("aerobee", deadline=None, derandomize=alike)
    hypothesis.settings.load_profile("aerobee")
    # Brokers started here are to have the signals of a terminal, also where this run ignores them.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # What did not run, and why, stands at the end of every run.
    config.option.reportchars += "s"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # What takes longest begins first, so that no worker is left with it in the end: after those
    # with a mark the files of `tests` itself, which build wheels, sites and programs.
    items.sort(
        key=lambda item: [
            *(item.get_closest_marker(mark) is None for mark in LONG),
            item.path.parent.name != "tests",
        ]
    )
    for mark in PARTS_OF_THEIR_OWN:
        having = {item.path for item in items if item.get_closest_marker(mark)}
        if silent := [path for path in having if f"mark.{mark}" not in path.read_text("utf-8")]:
            raise pytest.UsageError(f"{silent[0]} has to name mark.{mark}: it is read to find them")
    if not str(record.__file__).endswith(".py"):
        needs_pure = NEEDS_PURE.read_text(encoding="utf-8").splitlines()
        pure = pytest.mark.skip(reason="compiled: see deploy/compiled/needs_pure.txt")
        for item in items:
            if item.nodeid.partition("[")[0] in needs_pure:
                item.add_marker(pure)
    against: str = config.getoption("--against")
    if against != OURS:
        skip = pytest.mark.skip(reason=f"not a promise of {against}")
        version = numbers(against.removeprefix(JAVA))
        for item in items:
            since = item.get_closest_marker("since")
            if item.get_closest_marker("ours") or (since and version < numbers(*since.args)):
                item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling | None":
    """As `--dist loadfile`, but for the files of `SHARED_OUT` and of `TOGETHER`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    together = {
        str(path.relative_to(config.rootpath)): folder
        for folder, names in TOGETHER.items()
        for path in (config.rootpath / folder).glob("test_*.py")
        if names.search(path.read_text(encoding="utf-8"))
    }

    class Shared(LoadFileScheduling):  # type: ignore[misc]  # xdist tells no types
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if file in together:
                return together[file]
            return nodeid if nodeid.startswith(SHARED_OUT) else file

    return Shared(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: nobody looks through it for what is left to free."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """One that hangs fails, with its name and with the line that waits; the others go on."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"{item.nodeid} hangs: it takes more than {WITHIN_S:g} s")

    # An image takes its time, and a campaign at another size than its own.
    endless = item.get_closest_marker("image") or item.config.getoption("--cycles")
    within_s = 0.0 if endless else WITHIN_S
    before = signal.signal(signal.SIGALRM, late)
    # A broker of this process blocks signals for good: those of later tests would never hear them.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    # Again and again, for the end of a test may hang as well.
    signal.setitimer(signal.ITIMER_REAL, within_s, within_s)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def numbers(version: str) -> list[int]:
    """A version, to be compared with others."""
    return [int(number) for number in version.split(".")]


@pytest.fixture(scope="session", autouse=True)
def disk_with_room() -> Iterator[None]:
    """Stores in this process see a disk that is used to the half; brokers have `ROOMY` for it."""
    asked = Machine.free_space

    def free_space(machine: Machine, path: Path) -> Space:
        space = asked(machine, path)
        half = space.total_bytes // 2
        return Space(space.total_bytes, half, half) if is_of_the_machine(path) else space

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "free_space", free_space)
        yield


@pytest.fixture(autouse=True)
def faults_are_met() -> Iterator[None]:
    """A test whose faults no call meets any more tests nothing."""
    Fault.made.clear()
    yield
    missed = unmet(Fault.made)
    assert not missed, f"no call met {missed}"


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What is logged while the test runs, however the tests before it set logging up."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate that servers under test show."""
    return certificate(tmp_path_factory.mktemp("tls"))


@contextmanager
def _java_broker(version: str, data: Path, settings: Mapping[str, object]) -> Iterator[JavaBroker]:
    """With a name server of its own, as ours: to clients, brokers of one name are one."""
    namesrv = JavaNamesrv(toolkit("5.5.0"), data.with_name(f"{data.name}-namesrv"))
    try:
        with JavaBroker(
            toolkit=toolkit(version),
            data=data,
            home=data.with_name(f"{data.name}-home"),
            namesrv_address=namesrv.address,
            settings={"timerWheelEnable": True, **settings},
        ) as broker:
            yield broker
    finally:
        namesrv.stop()


@contextmanager
def _starting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartBroker]:
    against: str = request.config.getoption("--against")
    with ExitStack() as running:

        def start(data: Path | None = None, **settings: object) -> AnyBroker:
            data = data or tmp_path_factory.mktemp("broker") / "data"
            if against == OURS:
                return running.enter_context(BrokerProcess(data=data, settings=settings))
            version = against.removeprefix(JAVA)
            return running.enter_context(_java_broker(version, data, settings))

        yield start


@pytest.fixture(scope="module")
def start_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartBroker]:
    """Start a broker with these settings on a new directory; all of a module end with it."""
    with _starting(request, tmp_path_factory) as start:
        yield start


def _shared_scope(fixture_name: str, config: pytest.Config) -> Literal["module", "session"]:
    """Ours starts sooner than it costs to have it wait for other modules: 1 % of a core."""
    return "module" if config.getoption("--against") == OURS else "session"


@pytest.fixture(scope=_shared_scope)
def shared_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartBroker]:
    """The one broker of the module with these settings; of Java's the one of the session.

    For tests with topics and groups of their own, that neither stop it nor look at all it has.
    """
    java = request.config.getoption("--against") != OURS
    started: dict[tuple[tuple[str, object], ...], AnyBroker] = {}
    with _starting(request, tmp_path_factory) as start:

        def get(**settings: object) -> AnyBroker:
            if java:
                settings = SHARED_JAVA | settings
            wanted = tuple(sorted(settings.items()))
            if wanted not in started:
                started[wanted] = start(**settings)
            return started[wanted]

        yield get
