"""Errors as `application/problem+json` (RFC 9457)."""

import msgspec
from starlette.responses import Response

from quiver.errors import QuiverError, UnavailableError

RETRY_AFTER_SECONDS = 1


def problem(error: QuiverError) -> Response:
    """The answer that tells an error; its `code` is that of the Python error."""
    body = {
        "type": f"urn:quiver:error:{error.code}",
        "title": (type(error).__doc__ or "").split("\n", 1)[0],
        "status": error.http_status,
        "detail": str(error),
        "code": error.code,
        "retryable": error.retryable,
    }
    headers = {}
    if isinstance(error, UnavailableError):
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    if error.http_status == 401:
        headers["www-authenticate"] = 'Bearer realm="quiver"'
    return Response(
        msgspec.json.encode(body), error.http_status, headers, "application/problem+json"
    )
