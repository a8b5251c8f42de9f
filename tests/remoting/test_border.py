"""The border of a request: its errors are kept, and nothing else is."""

from __future__ import annotations

import pytest

from aerobee.remoting.border import Border


def test_an_error_inside_is_kept_and_goes_no_further() -> None:
    fault = KeyError("7")
    with Border() as border:
        raise fault
    assert border.error is fault


def test_what_goes_well_leaves_none() -> None:
    with Border() as border:
        pass
    assert border.error is None


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_end_of_a_task_or_of_the_process_passes(end: type[BaseException]) -> None:
    border = Border()
    with pytest.raises(end), border:
        raise end
    assert border.error is None
