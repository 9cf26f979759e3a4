"""Who a node is comes back as it was, or not at all."""

from random import Random

import pytest
from crc32c import crc32c

from quiver.errors import CorruptIdentity, UnsupportedFormat
from quiver.storage import identity, snapshot
from quiver.storage.identity import NAME, Identity, KnownPeer
from quiver.testing import MemoryFiles, SimulatedCrash

PEERS = (KnownPeer(2, "host2", "host2:7071"), KnownPeer(3, "höst3", "[::1]:7071"))
IDENTITY = Identity("0123456789abcdef" * 2, 1, 1, "fedcba9876543210" * 2, 0, PEERS)
OTHER = Identity(IDENTITY.cluster, 2, 1, IDENTITY.directory)


def test_a_directory_that_never_joined_has_none(files):
    assert identity.load(files) is None
    assert files.names() == []


def test_it_comes_back(files):
    for one in (IDENTITY, OTHER):
        one.save(files)
        assert identity.load(files) == one
    assert files.names() == [NAME]


def test_no_flipped_bit_and_no_cut_goes_unnoticed():
    files = MemoryFiles()
    IDENTITY.save(files)
    whole = files.open(NAME).read(0, 10_000)
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        files.open(NAME).write(0, [damaged])
        with pytest.raises(CorruptIdentity, match="file node is damaged"):
            identity.load(files)
    for length in range(len(whole)):
        files.open(NAME).write(0, [whole])
        files.open(NAME).truncate(length)
        with pytest.raises(CorruptIdentity):
            identity.load(files)


def test_a_newer_format_is_told_from_damage():
    files = MemoryFiles()
    line = b'{"version": 2, "other": "fields"}\n'
    files.create(NAME).write(0, [b"%08x " % crc32c(line), line])
    with pytest.raises(UnsupportedFormat, match="has format 2"):
        identity.load(files)


def test_a_crash_at_any_operation_leaves_the_old_or_the_new_one():
    for crash_at in range(1, 20):
        files = MemoryFiles()
        IDENTITY.save(files)
        files.crash_at = files.operations + crash_at
        try:
            OTHER.save(files)
        except SimulatedCrash:
            chances = [files.crash(Random(seed)) for seed in range(20)]
            for found in (files.crash("none"), files.crash("all"), *chances):
                snapshot.clean(found)
                assert identity.load(found) in [IDENTITY, OTHER]
                assert found.names() == [NAME]
        else:
            assert identity.load(files.crash("none")) == OTHER
            return
    pytest.fail("it takes more operations than this test expects")
