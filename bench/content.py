"""What is sent: random bytes, which nothing can compress, or JSON as services send it."""

from random import Random

import msgspec
import pyarrow as pa

BODY_BYTES = 100


def bodies(count: int) -> list[bytes]:
    """Random bodies of 100 bytes."""
    chance = Random(count)
    return [chance.randbytes(BODY_BYTES) for _ in range(count)]


def texts(count: int) -> list[str]:
    """Bodies of 100 characters, for a peer that stores text."""
    return [body.hex()[:BODY_BYTES] for body in bodies(count)]


def batch_of(bodies_: list[bytes]) -> pa.RecordBatch:
    """The bodies as an Arrow record batch."""
    return pa.record_batch({"body": pa.array(bodies_, pa.binary())})


def orders(count: int) -> list[bytes]:
    """Orders as JSON, some 150 bytes each, as alike as real ones are."""
    chance = Random(count)
    cities = ["Lisbon", "Nairobi", "Osaka", "Quito", "Tromsø", "Utrecht"]
    return [
        msgspec.json.encode(
            {
                "order_id": 1_000_000 + number,
                "customer": f"c-{chance.randrange(100_000):06}",
                "city": chance.choice(cities),
                "lines": [{"sku": f"sku-{chance.randrange(5_000)}", "count": chance.randrange(9)}],
                "total": round(chance.uniform(1, 500), 2),
                "currency": "EUR",
            }
        )
        for number in range(count)
    ]
