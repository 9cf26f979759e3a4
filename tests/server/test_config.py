"""A configuration is read from file, environment and options; what is wrong is said with its place."""

from pathlib import Path

import pytest

from quiver.errors import InvalidRequest
from quiver.server.config import load
from quiver.server.serve import check


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_without_anything_it_is_for_this_machine_only():
    config = load(None, {})
    assert (config.listen, config.loopback, config.data) == ("127.0.0.1:7070", True, Path("data"))


def test_options_outweigh_the_environment_and_that_the_file(tmp_path: Path):
    path = written(
        tmp_path,
        'data = "a"\nlisten = "127.0.0.1:1"\nhosts = ["a"]\n[bounds]\nidle_seconds = 5\nconnections = 9\n',
    )
    environment = {
        "QUIVER_LISTEN": "127.0.0.1:2", "QUIVER_HOSTS": "b, c", "QUIVER_BOUNDS_IDLE_SECONDS": "7.5",
        "QUIVER_SOMETHING_ELSE": "1",
    }  # fmt: skip
    config = load(path, environment, {"listen": "127.0.0.1:3", "data": None})
    assert config.data == Path("a")
    assert config.listen == "127.0.0.1:3"
    assert config.hosts == ("b", "c")
    assert (config.bounds.idle_seconds, config.bounds.connections) == (7.5, 9)


def test_a_table_may_come_from_the_environment_alone():
    config = load(None, {"QUIVER_TLS_CERT": "a.pem", "QUIVER_TLS_KEY": "b.pem"})
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key) == (Path("a.pem"), Path("b.pem"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lisen = 'x'", "there is no key 'lisen'; did you mean 'listen'?"),
        ("[bounds]\nidle = 1", "there is no key 'idle' in [bounds]; did you mean 'idle_seconds'?"),
        ("data = 1", "data: expected a text"),
        ("hosts = 'a'", "hosts: expected a list, got a text"),
        ("hosts = ['a', 1]", "hosts: expected a text, got a whole number"),
        ("insecure = 'yes'", "insecure: expected true or false, got a text"),
        ("bounds = 1", "bounds: expected a table, got a whole number"),
        (
            "[bounds]\nconnections = 1.5",
            "bounds.connections: expected a whole number >= 1 and <= 1000000, got a number",
        ),
        (
            "[bounds]\nhead_seconds = 0",
            "bounds.head_seconds: expected a number > 0 and <= 86400, got 0",
        ),
        (
            "[log]\nlevel = 'loud'",
            "log.level: expected 'debug' or 'error' or 'info' or 'warning', got 'loud'",
        ),
        ("durability = 'tape'", "durability: expected 'disk' or 'memory', got 'tape'"),
        ("listen = '7070'", "an address and a port"),
        ("listen = '127.0.0.1:99999'", "an address and a port"),
        ("listen = 'example.com:7070'", "is not an IP address"),
        ("listen = [", "is not TOML"),
        ("[tls]\ncert = 'a.pem'", "there must be a key 'key' in [tls]"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, text: str, message: str):
    path = written(tmp_path, text)
    with pytest.raises(InvalidRequest) as caught:
        load(path, {})
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_wrong_variable_is_said_by_its_key():
    with pytest.raises(InvalidRequest, match=r"the environment: bounds.connections: expected"):
        load(None, {"QUIVER_BOUNDS_CONNECTIONS": "many"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("QUIVER_LISEN", "did you mean QUIVER_LISTEN?"),
        ("QUIVER_HOST", "did you mean QUIVER_HOSTS?"),
        ("QUIVER_DATA_DIR", "did you mean QUIVER_DATA?"),
        ("QUIVER_IDLE_SECONDS", "did you mean QUIVER_BOUNDS_IDLE_SECONDS?"),
        ("QUIVER_SQS_DELAY", "did you mean QUIVER_SQS_DELAY_SECONDS?"),
        ("QUIVER_LOG_X", "quiver serve knows none like it"),
    ],
)
def test_a_mistyped_variable_is_refused(name: str, meant: str):
    with pytest.raises(InvalidRequest) as caught:
        load(None, {name: "1"})
    assert str(caught.value) == f"the environment: there is no variable {name}; {meant}"
    load(None, {name: ""})  # as good as none


def test_variables_of_others_are_none_of_ours():
    names = (
        "QUIVER_TOKEN", "QUIVER_NODE", "QUIVER_PORT", "QUIVER_SERVICE_HOST",
        "QUIVER_SERVICE_PORT_HTTP", "QUIVER_SQS_PORT_7070_TCP_ADDR", "LISTEN",
    )  # fmt: skip
    assert load(None, dict.fromkeys(names, "1")) == load(None, {})


def test_a_file_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"cannot read the configuration .*none\.toml"):
        load(tmp_path / "none.toml", {})


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_other_machines_need_credentials(tmp_path: Path, listen: str):
    options = {"listen": listen, "data": tmp_path}
    with pytest.raises(InvalidRequest, match="--insecure"):
        check(load(None, {}, options))
    guard, _ = check(load(None, {}, {**options, "insecure": True}))
    assert guard.open


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0", "127.9.9.9:0"])
def test_this_machine_does_not(tmp_path: Path, listen: str):
    assert check(load(None, {}, {"listen": listen, "data": tmp_path}))
