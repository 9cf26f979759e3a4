"""What a consumer has received ahead, on a clock of the test's."""

import quiver
from quiver.client.stock import Ask, Keep, PrefetchBuffer, Rest, SendAcks


def test_what_is_forgotten_is_not_kept(tmp_path):
    """Its lease may go on at the node: made longer, nobody would ever have the message again."""
    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send_batch("t", ["0", "1"])
        begun, reserved = queue.receive("t", max_messages=2, begin=1)
    for delivery in (begun, reserved):
        stock: PrefetchBuffer[quiver.Delivery] = PrefetchBuffer(2, 30, keep=True)
        stock.add([delivery], 0.0, Ask(2, 1, waits=True), 0.0)
        assert isinstance(stock.next(30.0), Keep)  # and the node did not answer
        if delivery is begun:
            assert stock.take(30.0) is None
        while not isinstance(step := stock.next(31.0), Ask | Rest):
            assert not isinstance(step, SendAcks)
            held = (
                [x for _, due in step.due for x in due]
                if isinstance(step, Keep)
                else step.deliveries
            )
            assert delivery not in held
        stock.add([], 31.0, Ask(2, 1, waits=True), 31.0)
        assert not isinstance(stock.next(60.0), Keep)
