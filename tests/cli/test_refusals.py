"""Errors begin with what they are about, as it was written."""

import pytest


@pytest.mark.parametrize(
    "command",
    [["topics"], ["topics", "create", "t"], ["send", "t", "x", "--create"], ["top", "--once"],
     ["access", "list"]],
)  # fmt: skip
@pytest.mark.parametrize("place", ["localhost:7070", "127.0.0.1:7070"])
def test_an_address_without_its_scheme_is_no_directory(cli, command, place):
    cli(*command, "--data", place, code=2)
    assert f"did you mean quiver://{place}?" in cli.error
    assert list(cli.directory.iterdir()) == []


def test_a_path_at_the_start_of_an_error_stays_as_it_is(orders):
    orders("backup", "data", "bk")
    orders("restore", "bk", "data", code=2)
    assert orders.error == "quiver: data is not empty; give a new or empty directory.\n"


def test_the_exit_codes_say_what_a_node_that_does_not_answer_gives(cli):
    assert "no answer from the node" in " ".join(cli("--help").decode().replace("│", " ").split())
    cli("topics", "--data", "quiver://127.0.0.1:1?patience=1ms", code=3)
