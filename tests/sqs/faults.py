"""What is refused, and in which words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tools import sqs as model

CODES = {**model.CODES, **model.NOT_MODELLED}


@contextmanager
def refused(code: str, message: str | None = None, *, shape: str | None = None) -> Iterator[Any]:
    """The block must end with this error, as boto3 shows it."""
    with pytest.raises(ClientError) as caught:
        yield caught
    response = caught.value.response
    assert response["Error"]["Code"] == code, response
    if message is not None:
        assert response["Error"]["Message"] == message
    found = response["Error"]["QueryErrorCode"]
    if shape is not None:
        assert found == shape
    assert (code, response["ResponseMetadata"]["HTTPStatusCode"]) == CODES[found]
    assert response["ResponseMetadata"]["RequestId"]
    assert response["Error"]["Type"] == "Sender"
