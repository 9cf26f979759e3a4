"""Errors as `application/problem+json` (RFC 9457)."""

import math
from typing import Any, Final

import msgspec
from starlette.responses import Response

from quiver.errors import QuiverError, QuotaExceeded

PROBLEM: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1


def let_go(error: BaseException | None) -> None:
    """Forget which way an error came, when it has been told.

    What it passed had it in a variable, or the ticket that has it, and refers to all of the request: that
    would stay until the garbage collector comes by, with a body of megabytes.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


class InternalError(QuiverError):
    """Something went wrong in the node that should not."""

    code = "internal_error"


def problem(error: QuiverError, status: int | None = None, **more: Any) -> Response:
    """The answer that tells an error; its `code` is that of the Python error."""
    status = status or error.http_status
    headers = {}
    if error.retryable:
        after = error.retry_after if isinstance(error, QuotaExceeded) else RETRY_AFTER_SECONDS
        headers["retry-after"] = str(math.ceil(after))
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="quiver"'
    return Response(body_of(error, status, **more), status, headers, PROBLEM)


def body_of(error: QuiverError, status: int, **more: Any) -> bytes:
    """What such an answer says."""
    return msgspec.json.encode(
        {
            "type": f"urn:quiver:error:{error.code}",
            "title": (type(error).__doc__ or "").split("\n", 1)[0],
            "status": status,
            "detail": str(error),
            "code": error.code,
            "retryable": error.retryable,
            **more,
        }
    )
