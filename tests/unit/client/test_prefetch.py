"""What a consumer has received ahead, on a clock of the test's."""

import pytest

import quiver
from quiver.client.prefetch import Ask, Begin, Keep, PrefetchBuffer, Rest, SendAcks


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


@pytest.mark.parametrize("goes", [True, False])
def test_nothing_is_begun_for_somebody_who_does_not_wait_any_more(tmp_path, goes):
    """Neither when there was something to take, nor when it took too long."""
    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send_batch("t", ["0", "1"])
        got = queue.receive("t", max_messages=2, begin=0)
    stock: PrefetchBuffer[quiver.Delivery] = PrefetchBuffer(2, 30, keep=False)
    stock.add(got, 0.0, Ask(2, 0, waits=False), 0.0)
    assert stock.take(0.0) is None
    if goes:
        stock.nobody_waits()
    else:
        step = stock.next(0.0)
        assert isinstance(step, Begin)
        assert step.deliveries == got[:1]
        stock.were_begun((), 0.0, 0.0)
        assert stock.take(0.0) is got[0]
    step = stock.next(0.1)
    assert isinstance(step, Ask | Rest)
    assert not (isinstance(step, Ask) and step.waits)
