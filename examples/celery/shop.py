"""A shop whose work is done by Celery, with a Quiver node as its broker.

pip install 'celery[sqs]'
quiver serve                      in one terminal: 127.0.0.1:7070
celery -A shop worker             in another, in this folder
python shop.py                    in a third: places an order
"""

import os

from celery import Celery, chain

# A node that asks who you are wants a key: `quiver access key` shows an id and a secret.
NODE = os.environ.get("QUIVER_NODE", "any:any@127.0.0.1:7070")

app = Celery("shop", broker=f"sqs://{NODE}")
app.conf.update(
    task_default_queue="shop",
    task_acks_late=True,  # a task whose worker dies is given to another one
    worker_prefetch_multiplier=1,  # and nothing lies about in a worker that is busy
    worker_enable_remote_control=False,  # it needs a broadcast, which SQS has not got
    broker_transport_options={
        "region": "eu-central-1",  # any will do
        "is_secure": False,  # True when the node has a certificate
        "visibility_timeout": 300,  # seconds: longer than any task, and than any countdown
        "wait_time_seconds": 10,  # how long a worker's question waits for an answer
        "polling_interval": 0,  # ask again at once
    },
)


class PaymentFailed(Exception):
    """The bank did not answer; it may the next time."""


@app.task(bind=True, autoretry_for=(PaymentFailed,), retry_backoff=1, max_retries=5)
def pay(self, order: int) -> int:
    if self.request.retries < 2:
        raise PaymentFailed(order)
    print(f"order {order}: paid at the third attempt")
    return order


@app.task
def ship(order: int) -> None:
    print(f"order {order}: shipped")


@app.task
def remind(order: int) -> None:
    print(f"order {order}: please tell us how you liked it")


if __name__ == "__main__":
    chain(pay.s(42), ship.s()).delay()
    remind.apply_async((42,), countdown=5)
