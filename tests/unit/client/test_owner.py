"""Whose a producer or consumer is."""

import os

from quiver.client.owner import Owner
from quiver.errors import QueueClosed


def test_a_forked_process_is_another_and_its_own_are_not():
    before = Owner("producer")
    child = os.fork()
    if child == 0:
        refused = 1
        try:
            Owner("producer").demand()
            before.demand()
        except QueueClosed as error:
            refused = 0 if "open another after forking" in str(error) and before.gone else 2
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before.demand()  # here nothing has changed
