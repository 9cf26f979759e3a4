"""Servers that speak the SQS protocol, all of them through boto3, a message at a time."""

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.brokers.java import java, version_of
from bench.brokers.lean import send_message
from bench.brokers.peer import Peer
from bench.brokers.process import Missing, Server, free_port
from bench.content import texts
from bench.measure import Side, Step

CLIENTS = 4  # processes of a crowd

ELASTICMQ = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "127.0.0.1", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
"""


@contextmanager
def moto(folder: Path) -> Iterator[Peer]:
    """moto's server, which keeps everything in memory."""
    try:
        number = version("moto")
        import flask  # noqa: F401  # the extra that makes it a server
    except ImportError:
        raise Missing("moto[server] is not installed: make setup") from None
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with Server(command, folder) as server:
        server.wait_for_port(port)
        yield sqs_peer("moto", f"{number}, in memory, not durable", port)


@contextmanager
def elasticmq(folder: Path) -> Iterator[Peer]:
    """ElasticMQ as it comes, which keeps everything in memory."""
    port = free_port()
    config = folder / "elasticmq.conf"
    config.write_text(ELASTICMQ.format(port=port))
    command = java("elasticmq", "org.elasticmq.server.Main")
    command.insert(1, f"-Dconfig.file={config}")
    number = version_of("elasticmq", "elasticmq-server_2.13")
    with Server(command, folder) as server:
        server.wait_for_port(port)
        yield sqs_peer("ElasticMQ", f"{number}, in memory, not durable", port)


@contextmanager
def nothing(folder: Path) -> Iterator[Peer]:
    """A server that answers and does nothing else: see `bench.brokers.nothing`."""
    port = free_port()
    program = str(Path(__file__).with_name("nothing.py"))
    with Server([sys.executable, program, str(port), *texts(1)], folder) as server:
        server.wait_for_port(port)
        yield sqs_peer("nothing", "answers with the same words each time", port)


def sqs_peer(name: str, settings: str, port: int) -> Peer:
    """A server on this port through boto3: a standard queue, one message in each call."""
    send, take = _client(port)
    return Peer(
        name, f"{settings}, boto3 {version('boto3')}", send, take, send,
        ("send_message", "receive_message, delete_message", "send_message"),
        lambda: _crowd(port), kept=lambda connections: send_message(port, connections),
    )  # fmt: skip


def _client(port: int) -> tuple[Step, Step]:
    """What sends a message, and what takes and deletes one."""
    import boto3
    from botocore.config import Config

    client: Any = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
    )
    queue = client.create_queue(QueueName="t")["QueueUrl"]
    (body,) = texts(1)

    def send() -> int:
        client.send_message(QueueUrl=queue, MessageBody=body)
        return 1

    def take() -> int:
        (message,) = client.receive_message(QueueUrl=queue)["Messages"]
        client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return 1

    return send, take


@contextmanager
def _crowd(port: int) -> Iterator[Side]:
    """Client processes that each send a message, take one and delete it, again and again."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(CLIENTS)]
    workers = [spawn.Process(target=_work, args=(port, theirs)) for _, theirs in pipes]
    ours = [pipe for pipe, _ in pipes]

    def work(seconds: float) -> tuple[int, float]:
        start = time.perf_counter()
        for pipe in ours:
            pipe.send(seconds)
        return sum(pipe.recv() for pipe in ours), time.perf_counter() - start

    for worker in workers:
        worker.start()
    try:
        yield work
    finally:
        for pipe in ours:
            pipe.send(None)
        for worker in workers:
            worker.join()


def _work(port: int, orders: Connection) -> None:
    send, take = _client(port)
    while (seconds := orders.recv()) is not None:
        done, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            send()
            done += take()
        orders.send(done)
