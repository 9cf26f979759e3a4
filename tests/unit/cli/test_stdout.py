"""Which pieces were written is known exactly, also when the reader goes away."""

import os
from types import SimpleNamespace

import pytest

from quiver.cli import stdout
from quiver.cli.stdout import OutputFailed, Stdout


@pytest.fixture
def pipe(monkeypatch):
    """Standard output is a pipe of ours."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fake = SimpleNamespace(flush=lambda: None, fileno=lambda: writer)
    monkeypatch.setattr(stdout, "sys", SimpleNamespace(stdout=fake))
    made = SimpleNamespace(out=Stdout(), reader=reader)
    yield made
    os.close(writer)
    if made.reader is not None:
        os.close(made.reader)


def test_what_is_written_whole_counts(pipe):
    assert pipe.out.write([b"one\n", b"", b"two\n"]) == 3
    assert os.read(pipe.reader, 100) == b"one\ntwo\n"
    assert not pipe.out.closed
    pipe.out.check()


def test_a_reader_that_went_away_is_noticed_before_and_while_writing(pipe):
    os.close(pipe.reader)
    pipe.reader = None
    assert pipe.out.closed
    assert pipe.out.write([b"one\n"]) == 0
    with pytest.raises(BrokenPipeError):
        pipe.out.check()


def test_a_piece_that_was_written_in_part_does_not_count(pipe, monkeypatch):
    written: list[int] = []

    def write(_, data):
        if sum(written) >= 5:
            raise OSError(28, "No space left on device")
        written.append(min(5, len(data)))
        return written[-1]

    monkeypatch.setattr(os, "write", write)
    assert pipe.out.write([b"123\n", b"456\n"]) == 1
    with pytest.raises(OutputFailed, match="No space left"):
        pipe.out.check()
