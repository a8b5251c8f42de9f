"""The judge of crash tests must see each crime: a checker that finds nothing proves nothing."""

from tests.kit.history import History, Place, Stored, TransactionHistory


def history(*, pipelined: bool = True) -> History:
    """Three messages of one producer in one queue; the third was never acknowledged."""
    told = History(pipelined=pipelined)
    for number in range(3):
        told.tried(f"u{number}", "p", "T", 0, b"body %d" % number)
    told.acked("u0", 0)
    told.acked("u1", 1)
    return told


def there(uid: str, queue_offset: int, body: bytes | None = None, queue_id: int = 0) -> Stored:
    return Stored(Place("T", queue_id, queue_offset), uid, body or b"body " + uid[1:].encode())


def crimes(stored: list[Stored]) -> set[str]:
    return {line.partition(":")[0] for line in history().verdict(stored)}


def test_what_was_never_acknowledged_may_be_there_or_not() -> None:
    history().check([there("u0", 0), there("u1", 1)])
    history().check([there("u0", 0), there("u1", 1), there("u2", 2)])


def test_a_missing_acknowledged_message_is_lost() -> None:
    assert crimes([there("u0", 0)]) == {"lost"}


def test_a_message_at_another_offset_than_acknowledged_is_lost() -> None:
    assert "lost" in crimes([there("u0", 0), there("u2", 1), there("u1", 2)])


def test_a_message_nobody_sent_is_foreign() -> None:
    assert crimes([there("u0", 0), there("u1", 1), there("u9", 2)]) == {"foreign"}


def test_changed_bytes_are_seen() -> None:
    assert crimes([there("u0", 0), there("u1", 1, b"body 1!")]) == {"altered"}


def test_a_message_in_another_queue_is_altered() -> None:
    stored = [there("u0", 0), there("u1", 1), there("u2", 0, queue_id=1)]
    assert crimes(stored) == {"altered"}


def test_a_message_that_lies_twice_is_seen() -> None:
    assert crimes([there("u0", 0), there("u1", 1), there("u1", 2)]) == {"doubled"}


def test_a_hole_in_the_offsets_is_seen() -> None:
    assert crimes([there("u0", 0), there("u1", 1), there("u2", 3)]) == {"gap"}


def test_one_offset_given_twice_is_seen() -> None:
    assert "gap" in crimes([there("u0", 0), there("u1", 1), there("u2", 1)])


def test_sends_in_flight_together_may_change_places_unless_pipelined() -> None:
    for pipelined in (True, False):
        told = History(pipelined=pipelined)
        told.tried("u0", "p", "T", 0, b"body 0")
        told.tried("u1", "p", "T", 0, b"body 1")
        told.acked("u1", 0)
        told.acked("u0", 1)
        assert bool(told.verdict([there("u1", 0), there("u0", 1)])) is pipelined


def test_a_send_after_an_acknowledgement_must_lie_behind_it() -> None:
    told = History(pipelined=False)
    told.tried("u0", "p", "T", 0, b"body 0")
    told.acked("u0", 1)
    told.tried("u1", "p", "T", 0, b"body 1")
    told.acked("u1", 0)
    [line] = told.verdict([there("u1", 0), there("u0", 1)])
    assert line.startswith("disordered: u0 came before u1")


def test_a_verdict_stays_short() -> None:
    told = History()
    assert len(told.verdict([there(f"u{number}", number) for number in range(100)])) == 11


def transactions() -> TransactionHistory:
    """One that commits, one that does not, and two of which the broker said nothing."""
    told = TransactionHistory()
    for number, (commits, acked) in enumerate(
        [(True, True), (False, True), (True, False), (False, False)]
    ):
        told.began(f"u{number}", b"body %d" % number, commits=commits).acked = acked
    return told


def test_what_commits_is_there_and_nothing_else() -> None:
    assert transactions().verdict([there("u0", 0)], once=True) == []
    assert transactions().verdict([there("u0", 0), there("u0", 1)]) == []


def test_crimes_against_transactions_are_seen() -> None:
    def found(*uids: str, once: bool = False) -> set[str]:
        stored = [there(uid, number) for number, uid in enumerate(uids)]
        return {line.partition(":")[0] for line in transactions().verdict(stored, once=once)}

    assert found() == {"lost"}
    assert found("u0", "u1") == found("u0", "u2") == found("u0", "u3") == {"ghost"}
    assert found("u0", "u9") == {"foreign"}
    assert found("u0", "u0", once=True) == {"doubled"}
    altered = transactions().verdict([there("u0", 0, b"another body")])
    assert [line.partition(":")[0] for line in altered] == ["altered"]
