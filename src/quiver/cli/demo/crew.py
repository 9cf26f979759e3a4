"""The crew: worker processes with their couriers, hired, put to work and sent home together."""

from itertools import count
from pathlib import Path
from typing import Final

import quiver
from quiver.cli.demo.couriers import Courier, Sabotage, Tally
from quiver.cli.demo.services import SERVICES, ServiceName
from quiver.cli.demo.workers import ANSWER_SECONDS_MAX, Worker, WorkerFailed

PAUSE_SECONDS_MAX: Final = ANSWER_SECONDS_MAX + 10.0  # a courier may be waiting for an answer


class Crew:
    """Everybody who works. Closing it ends every process that it started, and no other."""

    def __init__(self, folder: Path) -> None:
        self.tallies = {service: Tally() for service in SERVICES}
        self._folder = folder
        self._sabotage = Sabotage()
        self._workers: list[Worker] = []
        self._couriers: list[Courier] = []
        self._numbers = {service: count(1) for service in SERVICES}

    def hire(self, service: ServiceName, workers: int, *, repaired: bool = False) -> None:
        """Start worker processes; `wait_ready` waits for them."""
        for _ in range(workers):
            name = f"{service}-{next(self._numbers[service])}"
            self._workers.append(Worker(name, service, self._folder, repaired=repaired))

    def wait_ready(self) -> None:
        """Return when all processes hired so far have started."""
        for worker in self._workers:
            worker.wait_ready()

    def work(self, queue: quiver.Queue) -> None:
        """Give each worker a courier that takes orders from the queue."""
        for worker in self._workers:
            sabotage = self._sabotage if worker.service == "billing" else None
            courier = Courier(queue, worker, self.tallies[worker.service], sabotage)
            self._couriers.append(courier)
            courier.start()

    def pause(self) -> None:
        """Let every courier finish its batch; after that nobody uses the queue."""
        self._stop_couriers()
        self.raise_problems()
        alive = [courier.name for courier in self._couriers if courier.is_alive()]
        if alive:
            raise WorkerFailed(f"did not stop: {', '.join(alive)}")
        self._couriers.clear()

    def _stop_couriers(self) -> None:
        for courier in self._couriers:
            courier.stop()
        for courier in self._couriers:
            courier.join(PAUSE_SECONDS_MAX)

    def raise_problems(self) -> None:
        """Raise what has ended a courier, if anything has."""
        for courier in self._couriers:
            if courier.problem is not None:
                raise courier.problem

    def stranded(self) -> Courier | None:
        """The courier whose worker hangs, if there is one by now."""
        return next((courier for courier in self._couriers if courier.stranded), None)

    def kill(self, worker: Worker) -> int:
        """SIGKILL a worker; return its exit code."""
        exit_code = worker.kill()
        self._dismiss([worker])
        return exit_code

    def dismiss(self, service: ServiceName) -> None:
        """End the workers of a service, while the crew pauses."""
        self._dismiss([worker for worker in self._workers if worker.service == service])

    def _dismiss(self, workers: list[Worker]) -> None:
        for worker in workers:
            self._workers.remove(worker)
            worker.stop()

    def close(self) -> None:
        """Send everybody home, whatever has happened."""
        try:
            self._stop_couriers()
        finally:
            self._dismiss(list(self._workers))
