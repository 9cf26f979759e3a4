"""`quiver backup` and `quiver restore` say what they did, and where they cannot."""

import quiver


def test_a_backup_and_its_restoring_are_told_in_a_sentence(orders):
    assert b" is in keep: " in orders("backup", "data", "keep")
    assert b"copied: 0 files" in orders("backup", "data", "keep")
    assert b"copy has everything up to entry " in orders("restore", "keep", "copy")
    with quiver.connect(orders.directory / "copy") as queue:
        assert len(list(queue.read("orders"))) == 5


def test_without_a_directory_that_has_a_queue_it_says_what_it_wants(orders):
    ended = orders.run("backup", "quiver://127.0.0.1:1", "keep")
    assert ended.code == 2
    assert "beside the running node" in ended.error
    assert "quiver backup DIR DEST" in ended.error
    assert "--data" not in ended.error
    ended = orders.run("backup", "data", "quiver://127.0.0.1:1")
    assert "quiver backup DIR DEST" in ended.error
    ended = orders.run("backup", "nowhere", "keep")
    assert ended.code == 2
    assert (
        "there is no queue in nowhere: it is not there. Say where it is with quiver backup DIR"
        in ended.error
    )
    assert "--data" not in ended.error
    assert orders.run("restore", "data", "copy").code == 2
    assert orders.run("backup", "data", "data/keep").code == 2


def test_a_damaged_log_is_an_error_for_who_looks_at_the_directory(orders):
    log = next((orders.directory / "data").glob("wal-*.log"))
    assert orders.run("backup", "data", "keep").code == 0
    content = bytearray(log.read_bytes())
    content[content.index(b"order 3")] ^= 1
    log.write_bytes(content)
    ended = orders.run("backup", "data", "keep")
    assert ended.code == 4
    assert f"{log.name} is damaged" in ended.error
    assert orders.run("restore", "keep", "copy").code == 0


def test_numbers_of_a_directory_with_hidden_entries_come_with_a_warning(orders):
    with orders.queue() as queue:
        for _ in range(2):
            queue.send("orders", "behind")
    data = orders.directory / "data"
    (data / "confirmed").unlink()  # later entries alone tell what was on disk
    log = next(data.glob("wal-*.log"))
    content = bytearray(log.read_bytes())
    content[content.index(b"order 3")] ^= 1
    log.write_bytes(content)
    for command in (["topics"], ["topics", "show", "orders"], ["groups", "orders"]):
        ended = orders.run(*command)
        assert ended.code == 4, command
        assert f"{log.name} is damaged" in ended.error
