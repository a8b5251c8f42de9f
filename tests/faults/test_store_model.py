"""The store against plain lists: what was taken is there after any end, once and unaltered."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.store.flush import extents
from aerobee.store.results import PutStatus
from tests.kit.faulty_disk import Fault, PowerCut
from tests.kit.store_model import Sent, StoreModel, check_directory, flush_everything, open_store

pytestmark = pytest.mark.faults

TOPICS = st.sampled_from(["T", "%RETRY%g", "日本"])
QUEUES = st.integers(0, 2)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01A\x02", b"KEYS\x01k\x02TAGS\x01B", b"TAGS\x01\x02"])
MESSAGES = st.builds(
    Sent, st.binary(max_size=30) | st.binary(min_size=400, max_size=1_500), PROPERTIES
)


class StoreMachine(RuleBasedStateMachine):
    """Puts, batches, flushes, kills and stops in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.model = StoreModel(Path(mkdtemp(prefix="store-model-")) / "d")

    @rule(topic=TOPICS, queue_id=QUEUES, sent=MESSAGES)
    def put(self, topic: str, queue_id: int, sent: Sent) -> None:
        assert self.model.put(topic, queue_id, sent).status is PutStatus.PUT_OK

    @rule(topic=TOPICS, queue_id=QUEUES, messages=st.lists(MESSAGES, min_size=1, max_size=6))
    def put_batch(self, topic: str, queue_id: int, messages: list[Sent]) -> None:
        self.model.put_batch(topic, queue_id, messages)

    @rule()
    def dispatch(self) -> None:
        self.model.store.dispatch()

    @rule()
    def write_queues(self) -> None:
        self.model.store.queues.write_all(sync=False)

    @rule()
    def flush(self) -> None:
        self.model.store.dispatch()
        flush_everything(self.model.store, self.model.disk)

    @rule(minutes=st.integers(0, 2))
    def wait(self, minutes: int) -> None:
        self.model.clock.ms += minutes * 60_000

    @rule()
    def crash(self) -> None:
        self.model.crash()
        check_directory(self.model.root)

    @rule()
    def stop(self) -> None:
        self.model.stop()
        check_directory(self.model.root)

    @invariant()
    def everything_is_there(self) -> None:
        self.model.check_store()

    def teardown(self) -> None:
        self.model.disk.kill()


class ExtentMachine(StoreMachine):
    """The same, with starts that believe what the queues reached when that was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(extents, "FEW", 0)
        self.patch.setattr(extents, "SHARE", 1 << 30)

    @rule()
    def save_extents(self) -> None:
        self.model.store.dispatch()
        self.model.save_extents()

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


OFTEN = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = OFTEN
TestExtentModel = ExtentMachine.TestCase
TestExtentModel.settings = settings(OFTEN, max_examples=10)


def fill(model: StoreModel, random: Random, count: int) -> None:
    for number in range(count):
        size = random.choice([0, 20, 100, 900])
        sent = Sent(random.randbytes(size), b"TAGS\x01A\x02" * random.randint(0, 1))
        if number % 5 == 4:
            model.put_batch("T", random.randint(0, 2), [sent] * 3)
        else:
            model.put("T", random.randint(0, 2), sent)
        model.store.dispatch()
        if random.random() < 0.1:
            flush_everything(model.store, model.disk)
        elif random.random() < 0.2:
            model.store.queues.write_all(sync=False)


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("granule", [512, 4_096])
def test_a_power_cut_leaves_a_beginning_that_holds_all_that_was_flushed(
    tmp_path: Path, keep: float, granule: int
) -> None:
    for seed in range(15):
        random = Random(f"{keep} {granule} {seed}")
        model = StoreModel(tmp_path / f"{seed}" / "d")
        model.disk.granule = granule
        fill(model, random, 60)
        flushed = model.store.commit_log.flushed
        after = model.disk.power_cut(tmp_path / f"{seed}" / "after", random, keep=keep)
        again = StoreModel(after)
        end = again.recovery.end_offset
        again.clock = model.clock
        assert end >= flushed
        model.forget_behind(end)
        again.queues, again.order = model.queues, model.order
        check_directory(after)
        again.check_store()
        fill(again, random, 10)
        again.crash()
        again.check_store()
        again.disk.kill()


def test_a_crash_after_any_change_of_the_disk_loses_nothing(tmp_path: Path) -> None:
    number = 1
    while True:
        root = tmp_path / f"{number}" / "d"
        model = StoreModel(root)
        model.disk.faults = [Fault(number=model.disk.changes + number, cut=True)]
        try:
            fill(model, Random(7), 25)
            done = True
        except PowerCut:
            done = False
        model.disk.faults = []
        model.crash()
        check_directory(root)
        # The message of the put that died may be there too, whole.
        for (topic, queue_id), sent in model.queues.items():
            assert model.store.max_offset(topic, queue_id) >= len(sent)
        model.disk.kill()
        if done:
            assert number > 50
            return
        number += 3


def test_a_crash_in_the_middle_of_recovery_is_recovered_from(tmp_path: Path) -> None:
    number = 1
    while True:
        root = tmp_path / f"{number}" / "d"
        model = StoreModel(root)
        fill(model, Random(3), 30)
        model.disk.kill()
        segment = max((root / "commitlog").iterdir())
        torn = bytearray(segment.read_bytes())
        end = model.store.commit_log.max_offset % len(torn)
        torn[end : end + 300] = b"\xda" * len(torn[end : end + 300])
        segment.write_bytes(torn)
        model.disk.faults = [Fault(number=model.disk.changes + number, cut=True)]
        try:
            open_store(root, model.disk, model.clock)
            done = True
        except PowerCut:
            done = False
        model.disk.faults = []
        model.crash()
        model.check_store()
        check_directory(root)
        model.disk.kill()
        if done:
            assert number > 10
            return
        number += 1
