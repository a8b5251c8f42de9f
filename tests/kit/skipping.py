"""Ends what this machine cannot run: a test is skipped, a bench ends with the reason.

The benches use this kit as well, also where the libraries of the tests are not installed.
"""

import sys
from typing import NoReturn


def skip(reason: str) -> NoReturn:
    """Skip the test. Raises: SystemExit with the reason where no test runs."""
    if "pytest" not in sys.modules:
        sys.exit(reason)
    import pytest

    pytest.skip(reason)


def fail(reason: str) -> NoReturn:
    """Fail the test. Raises: SystemExit with the reason where no test runs."""
    if "pytest" not in sys.modules:
        sys.exit(reason)
    import pytest

    pytest.fail(reason)
