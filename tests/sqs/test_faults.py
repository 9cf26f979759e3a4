"""Errors of ours in the words of SQS."""

import pytest

from quiver import errors
from quiver.server.sqs import faults

covers = pytest.mark.covers


@covers("RequestThrottled")
@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (errors.QuotaExceeded("x"), "RequestThrottled", 403),
        (errors.Overloaded("x"), "ServiceUnavailable", 503),
        (errors.QueueFull("x"), "ServiceUnavailable", 503),
        (errors.LimitExceeded("x"), "OverLimit", 403),
    ],
)
def test_who_is_to_come_again_is_told_so(error, code, status):
    fault = faults.of(error)
    assert (fault.code, fault.status) == (code, status)
