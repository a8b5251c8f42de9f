"""What fails in Spark, in its JVM or in a file system is told in a line, with its exit code."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.cli.border import FAILED, REFUSED, code_of
from aerobee.errors import AerobeeError, ConfigurationError, NoNameServerError
from aerobee.spark.jobs.failures import LOGGERS, plain, plainly

JVM = """\
[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance planned: Traceback
    raise ConfigurationError("first")
aerobee.errors.ConfigurationError: first

The above exception was the direct cause of:
aerobee.errors.{name}: {words}
\tat org.apache.spark.Thing.run(Thing.scala:42)
"""


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("ConfigurationError", ConfigurationError, None),
        ("NoNameServerError", NoNameServerError, NoNameServerError.code),
        ("AccessDeniedError", AerobeeError, 16),
        ("PermissionDeniedError", AerobeeError, None),
        ("NoSuchError", AerobeeError, None),
    ],
)
def test_an_error_of_ours_comes_out_of_spark_as_what_it_was(
    name: str, kind: type[AerobeeError], code: int | None
) -> None:
    error = plain(JVM.format(name=name, words="option x: y"))
    assert type(error) is kind
    assert str(error) == "option x: y"
    assert error.code == code


def test_other_errors_of_spark_are_their_first_line() -> None:
    error = plain("[PYTHON] Failed: Traceback (most recent call last):\n  x\nOSError: no disk\n\n")
    assert str(error) == "OSError: no disk"
    error = plain("[PATH_NOT_FOUND] Path does not exist: file:/x.\n\tat org.apache\n")
    assert str(error) == "[PATH_NOT_FOUND] Path does not exist: file:/x."


JAVA = """\
An error occurred while calling o42.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Thing.run(Thing.scala:42)
Caused by: java.io.IOException: {words}
\tat java.base/java.io.Thing
\t... 25 more
"""


def test_an_error_of_java_is_its_innermost_cause() -> None:
    error = plain(JAVA.format(words="Mkdirs failed to create file:/proc/x"))
    assert str(error) == "IOException: Mkdirs failed to create file:/proc/x"
    assert code_of(error) == FAILED


@pytest.mark.parametrize(
    "text",
    [
        JAVA.format(words="Permission denied"),
        "Failed: Traceback (most recent call last):\n  x\nPermissionError: [Errno 13] No: '/x'\n",
    ],
)
def test_what_is_forbidden_has_the_exit_code_for_it(text: str) -> None:
    error = plain(text)
    assert code_of(error) == REFUSED
    assert str(error).endswith(": run the job as a user who may")


@pytest.mark.spark
def test_files_and_wrong_conditions_are_told_in_a_line_and_nothing_is_logged(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AerobeeError, match=r"FileNotFoundError: .*no/file"), plainly():
        (tmp_path / "no" / "file").read_bytes()
    with pytest.raises(AerobeeError, match="no_such_column"), plainly():
        spark.range(1).where("no_such_column = 1").collect()
    assert "Traceback" not in capfd.readouterr().err
    assert not any(logging.getLogger(name).disabled for name in LOGGERS)
    # Errors of ours that are errors of the system, too, stay what they are.
    with pytest.raises(ConfigurationError), plainly():
        raise ConfigurationError("as it is")
