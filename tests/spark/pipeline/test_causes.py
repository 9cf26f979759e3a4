"""What Spark's processes tell as text is an error of ours again."""

import pytest
from py4j.protocol import Py4JNetworkError

from quiver.errors import InvalidRequest, PipelineFailed, QueueFull, Unreachable
from quiver.spark.pipeline.causes import cause

TRACE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: job aborted
Traceback (most recent call last):
  File "writing.py", line 1, in write
quiver.errors.{}

	at org.apache.spark.Something
"""


def test_our_error_is_found_in_what_spark_says():
    found = cause(RuntimeError(TRACE.format("QueueFull: topic 'a' has 3 messages; wait")))
    assert (type(found), str(found)) == (QueueFull, "topic 'a' has 3 messages; wait")
    assert found.retryable
    assert not cause(RuntimeError(TRACE.format("InvalidRequest: no"))).retryable
    last = TRACE.format("Unreachable: one") + TRACE.format("InvalidRequest: two")
    assert (type(cause(RuntimeError(last))), str(cause(RuntimeError(last)))) == (
        InvalidRequest,
        "two",
    )
    own = Unreachable("it")
    assert cause(own) is own


def test_what_is_not_ours_is_a_batch_that_failed():
    found = cause(RuntimeError(TRACE.format("Nonsense: no")))
    assert isinstance(found, PipelineFailed)
    assert "terminated with exception: job aborted" in str(found)
    assert "Traceback" not in str(found)


PROXY = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent \
call last):
  File "run.py", line 1, in _load
{}
	at org.apache.spark.Something
Caused by: java.lang.Exception: another
"""


@pytest.mark.parametrize(
    "said",
    [
        "pyspark.errors.exceptions.captured.AnalysisException: [SOME_CODE] the reason. SQLSTATE: 1",
        "OSError: the reason",
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.\n: java.X: the reason",
    ],
)
def test_the_reason_is_told_and_not_where_a_trace_begins(said):
    found = str(cause(RuntimeError(PROXY.format(said))))
    assert "again: " in found
    assert "the reason" in found
    assert "Traceback" not in found
    assert "another" not in found
    assert "An error occurred" not in found


class Speechless(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError


@pytest.mark.parametrize("error", [Speechless(), Py4JNetworkError("so"), ConnectionRefusedError()])
def test_what_java_cannot_say_any_more_is_that_it_has_ended(error):
    assert str(cause(error)).endswith("does again: the Java that it runs in has ended")
