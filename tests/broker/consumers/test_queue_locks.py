from aerobee.broker.consumers.queue_locks import LOCK_LIVES_MS, QueueLockTable


def table() -> QueueLockTable[int]:
    return QueueLockTable(max_locks=4)


def test_a_free_queue_is_granted_and_a_held_one_is_not() -> None:
    locks = table()
    assert locks.lock("g", "a", [0, 1], 0) == [0, 1]
    assert locks.lock("g", "b", [1, 2], 1) == [2]


def test_the_owner_renews_its_lock() -> None:
    locks = table()
    locks.lock("g", "a", [0], 0)
    assert locks.lock("g", "a", [0], 50_000) == [0]
    assert locks.lock("g", "b", [0], 50_000 + LOCK_LIVES_MS) == []


def test_another_client_takes_over_60_seconds_after_the_owner_vanished() -> None:
    locks = table()
    locks.lock("g", "a", [0], 0)
    assert locks.lock("g", "b", [0], LOCK_LIVES_MS) == []
    assert locks.lock("g", "b", [0], LOCK_LIVES_MS + 1) == [0]


def test_only_the_owner_unlocks() -> None:
    locks = table()
    locks.lock("g", "a", [0, 1], 0)
    locks.unlock("g", "b", [0, 1])
    assert locks.lock("g", "b", [0, 1], 1) == []
    locks.unlock("g", "a", [0, 7])
    assert locks.lock("g", "b", [0, 1], 1) == [0]


def test_groups_do_not_disturb_each_other() -> None:
    locks = table()
    assert locks.lock("g", "a", [0], 0) == [0]
    assert locks.lock("h", "b", [0], 0) == [0]


def test_a_group_consumes_in_order_while_a_lock_of_it_lives() -> None:
    locks = table()
    assert not locks.is_locked("g", 0)
    locks.lock("g", "a", [0], 0)
    assert locks.is_locked("g", LOCK_LIVES_MS)
    assert not locks.is_locked("g", LOCK_LIVES_MS + 1)


def test_locks_that_no_one_renews_are_forgotten() -> None:
    locks = table()
    locks.lock("g", "a", [0, 1], 0)
    locks.lock("h", "a", [0], 30_000)
    list(locks.sweep(LOCK_LIVES_MS + 1))
    assert set(locks.groups) == {"h"}
    assert locks.count == 1


def test_locks_taken_anew_while_the_old_ones_are_swept_stay() -> None:
    locks = table()
    locks.lock("g", "a", [0], 0)
    sweep = locks.sweep(1)
    next(sweep)
    locks.unlock("g", "a", [0])
    assert locks.lock("g", "b", [0], 1) == [0]
    list(sweep)
    assert locks.lock("g", "c", [0], 2) == []
    assert locks.count == 1


def test_locks_that_go_all_at_once_while_they_are_swept_are_counted_once() -> None:
    locks = table()
    locks.lock("g", "a", [0], 0)
    sweep = locks.sweep(LOCK_LIVES_MS + 1)
    next(sweep)
    locks.clear()
    list(sweep)
    assert locks.count == 0


def test_a_full_table_grants_no_new_lock() -> None:
    locks = table()
    assert locks.lock("g", "a", range(6), 0) == [0, 1, 2, 3]
    assert locks.lock("h", "a", [0], 0) == []
    assert "h" not in locks.groups
    locks.unlock("g", "a", [0])
    assert locks.lock("h", "a", [0], 0) == [0]


def test_one_group_cannot_take_the_room_of_the_others() -> None:
    locks: QueueLockTable[int] = QueueLockTable(max_locks=10, max_of_group=3)
    assert locks.lock("greedy", "a", range(100), 0) == [0, 1, 2]
    assert locks.lock("g", "b", [0], 0) == [0]


def test_all_locks_go_at_once() -> None:
    locks = table()
    locks.lock("g", "a", [0, 1, 2, 3], 0)
    locks.clear()
    assert locks.lock("h", "b", [0, 1, 2, 3], 1) == [0, 1, 2, 3]
