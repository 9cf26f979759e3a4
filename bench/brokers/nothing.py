"""`python nothing.py PORT BODY`: SQS without a queue, to see what boto3 itself takes.

Every request is answered with the same words for its action. No server can be faster, whatever it is
written in; what it is ahead of a server that works is all that the server takes.
"""

import asyncio
import json
import re
import sys
from hashlib import md5
from typing import Any

import uvloop

PORT, BODY = sys.argv[1:]
DIGEST = md5(BODY.encode()).hexdigest()
ANSWERS = {
    b"CreateQueue": {"QueueUrl": "http://127.0.0.1/000000000000/t"},
    b"SendMessage": {"MessageId": "1", "MD5OfMessageBody": DIGEST},
    b"ReceiveMessage": {
        "Messages": [
            {"MessageId": "1", "ReceiptHandle": "1", "Body": BODY, "MD5OfBody": DIGEST},
        ]
    },
    b"DeleteMessage": {},
}
TARGET = re.compile(rb"x-amz-target: amazonsqs\.(\w+)", re.IGNORECASE)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n"


class Nothing(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._read = b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        length, target = LENGTH.search(head), TARGET.search(head)
        if not end or length is None or target is None or len(body) < int(length[1]):
            return
        self._read = b""
        answer = json.dumps(ANSWERS[target[1]])
        self._transport.write((HEAD.format(len(answer)) + answer).encode())


async def main() -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Nothing, "127.0.0.1", int(PORT))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
