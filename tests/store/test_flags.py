from aerobee.store.flags import Flag, RunningFlags


def test_nothing_is_refused_at_first() -> None:
    flags = RunningFlags()
    assert (flags.bits, flags.refusing, flags.cause) == (0, False, "")


def test_bits_are_those_of_other_brokers() -> None:
    flags = RunningFlags()
    flags.set(Flag.DISK_FULL, "full")
    flags.set(Flag.NOT_WRITEABLE, "failed")
    assert flags.bits == 0x12
    assert flags.cause == "full; failed"


def test_writes_are_refused_until_the_last_reason_is_gone() -> None:
    flags = RunningFlags()
    flags.set(Flag.DISK_FULL, "a")
    flags.set(Flag.DISK_FULL, "b")
    flags.set(Flag.LOGIC_DISK_FULL, "c")
    assert flags.cause == "b; c"
    flags.clear(Flag.DISK_FULL)
    assert flags.refusing
    flags.clear(Flag.LOGIC_DISK_FULL)
    flags.clear(Flag.LOGIC_DISK_FULL)
    assert not flags.refusing
    assert not flags.has(Flag.LOGIC_DISK_FULL)


def test_not_readable_does_not_refuse_writes() -> None:
    flags = RunningFlags()
    flags.set(Flag.NOT_READABLE, "by hand")
    assert not flags.refusing
    assert flags.cause == ""
