"""A process that dies, or whose disk fails, at every single system call of a scripted workload.

Twice, in two ways. The worker counts its own calls to the system and kills itself at the N-th, for
every N until a run ends by itself: that is quick, so all of them have their turn. `strace` knows
nothing of Python: it kills the process when one of its threads makes its N-th call of a kind, or lets
that call fail, as the kernel sees it; that is slow, and so are the tests that kill. Every call has its
turn in `make soak`, in shares that can run side by side: a run waits for the disk most of its time.
Shorter runs take some of them.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.contract.verbs import drain
from tests.process.crash import by_kind, command, finish, opened_later, start
from tests.process.workers import prepare_script

STRACE = shutil.which("strace")
STEPS = {  # of what the script does often, some calls are enough: the worker itself dies at all
    "pwritev,pwritev2": 4, "fdatasync": 3, "fsync": 1, "rename": 1, "ftruncate": 1, "fallocate": 1,
    "unlink": 1,
}  # fmt: skip
CALLS_MAX = 1_500  # the script must not grow beyond what is tested

pytestmark = pytest.mark.process
needs_strace = pytest.mark.skipif(
    STRACE is None, reason="strace is not installed (apt install strace)"
)


def texts(found: list[bytes]) -> list[str]:
    return [body.decode().strip() for body in found]


def check(path: Path, said: str) -> int:
    """What the script was told is so; return how many messages were confirmed."""
    heard = by_kind(said)
    sent, acking, acked = (set(heard.get(kind, ())) for kind in ("sent", "acking", "acked"))
    with opened_later(path) as queue:
        made = queue.topics()
        assert not heard.get("made") or made == ["out", "t", "t.dlq"]
        prepare_script(queue)
        left, dead = texts(drain(queue, "t", "g")), texts(drain(queue, "t.dlq", "g"))
        out = texts(drain(queue, "out", "audit"))
        queue.send("t", b"and on it goes")
        assert drain(queue, "t", "g") == [b"and on it goes"]
    there = Counter(left + dead)
    assert sent <= {*there, *acking}, "lost"
    assert max(there.values(), default=1) == 1, "duplicated"
    assert not acked & set(there), "acked, and still there"
    assert set(heard.get("out", ())) <= set(out), "lost"
    assert max(Counter(out).values(), default=1) == 1, "duplicated"
    numbered = [line for line in out if line.startswith("p")]
    assert numbered == [f"p{at}" for at in range(len(numbered))]
    for line in out:
        if line.startswith("t "):
            assert line[2:] not in there, "half a transaction"
    return len(sent) + len(heard.get("out", ()))


def die_at_every_call(base: Path, step: int, first: int) -> tuple[int, int]:
    """How many processes died, and how many messages they had confirmed altogether."""
    said, complaints = finish(
        start(command("every", str(base), str(first), str(step))), seconds=2_000
    )
    heard = by_kind(said)
    assert heard.get("ended"), complaints[-3_000:]
    assert len(heard["killed"]) > 10
    assert int(heard["ended"][0]) < CALLS_MAX
    whole = by_kind((base / f"{heard['ended'][0]}.said").read_text())
    assert sum(map(int, whole["sealed"])) > 5, "messages were sealed"
    assert sum(map(int, whole["gone"])) > 2, "and segments rewritten together"
    confirmed = 0
    for number in heard["killed"] + heard["ended"]:
        confirmed += check(base / number, (base / f"{number}.said").read_text())
        shutil.rmtree(base / number)
    return len(heard["killed"]), confirmed


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(
    ("first", "step"),  # the call at which one dies first, and how many are between two
    [
        (4, 60),
        pytest.param(4, 10, marks=pytest.mark.slow),
        *[pytest.param(first, 6, marks=pytest.mark.soak) for first in range(1, 7)],
    ],
)
def test_a_process_that_dies_at_its_calls_loses_nothing(tmp_path, first, step):
    killed, confirmed = die_at_every_call(tmp_path, step, first)
    print(f"killed {killed}, confirmed {confirmed}, lost 0, duplicated 0")
    assert confirmed > killed, "there was something to lose"


def traced(path: Path, inject: str) -> tuple[str, str]:
    """What the scripted workload says under strace, which interferes as told."""
    words = ["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"]
    return finish(
        start([STRACE or "", *words, "-e", f"inject={inject}", *command("script", str(path))])
    )


def go_through(kind: str, what: str, step: int, base: Path) -> list[str]:
    """Interfere with the calls of a kind, one in each run, until a run meets none; all said."""
    heard = []
    for number in range(1, CALLS_MAX, step):
        path = base / str(number)
        said, complaints = traced(path, f"{kind}:{what}:when={number}")
        assert "Traceback" not in complaints, complaints[-3_000:]
        heard.append(said)
        check(path, said)
        if by_kind(said).get("end") and not by_kind(said).get("failed"):
            return heard
    raise AssertionError(f"the script makes more than {CALLS_MAX} calls of {kind}")


@needs_strace
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    "times", [pytest.param(6, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", STEPS)
def test_a_process_killed_as_the_kernel_sees_it_loses_nothing(tmp_path, kind, times):
    heard = go_through(kind, "signal=SIGKILL", times * STEPS[kind], tmp_path)
    assert len(heard) > 1, "no call of that kind was met"
    print(f"{kind}: killed {len(heard) - 1}, lost 0, duplicated 0")


def stops_confirming(said: str) -> None:
    """After the first failure there is nothing but failures, and they are of the right kind."""
    lines = said.splitlines()
    first = lines.index("failed StorageFailed")
    assert set(lines[first:]) <= {"failed StorageFailed", "end"}, lines[first:]


@pytest.mark.check
@needs_strace
@pytest.mark.parametrize(("kind", "step"), [("fdatasync", 75), ("fsync", 18)])
def test_a_sync_that_fails_stops_the_queue_for_good(tmp_path, kind, step):
    *failed, _ = go_through(kind, "error=EIO", step, tmp_path)
    assert failed, "no call of that kind was met"
    for said in failed:
        stops_confirming(said)


@needs_strace
@pytest.mark.check
def test_a_write_that_fails_stops_the_queue_for_good(tmp_path):
    *failed, _ = go_through("pwritev,pwritev2", "error=EIO", 210, tmp_path)
    assert failed
    for said in failed:
        stops_confirming(said)
