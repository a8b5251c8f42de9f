"""Ports that a module keeps: no broker that starts later is given them."""

from itertools import takewhile

from tests.kit.ports import BLOCK, free_block, kept_port


def test_a_kept_port_is_never_given_again() -> None:
    kept = kept_port()
    first = free_block().listen
    round_the_share = takewhile(lambda port: port != first, iter(lambda: free_block().listen, 0))
    assert all(abs(port - kept) >= BLOCK for port in round_the_share)
