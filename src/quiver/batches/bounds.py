"""How much one batch may be, whichever way it came."""

from quiver import limits
from quiver.errors import InvalidBatch, MessageTooLarge


def check_rows(rows: int) -> None:
    """Refuse a batch of no messages, or of more than one send may carry."""
    if rows == 0:
        raise InvalidBatch("a batch needs at least one message")
    if rows > limits.BATCH_ROWS_MAX:
        raise MessageTooLarge(
            f"a batch may have at most {limits.BATCH_ROWS_MAX:,} messages, not {rows:,}: "
            "send several"
        )


def check_bytes(nbytes: int) -> None:
    """Refuse a batch of more bytes than one send may carry."""
    if nbytes > limits.BATCH_BYTES_MAX:
        raise MessageTooLarge(
            f"a batch may have at most {limits.BATCH_BYTES_MAX:,} bytes, not {nbytes:,}: "
            "send several"
        )
