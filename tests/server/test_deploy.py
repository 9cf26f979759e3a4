"""The files in deploy/ say what they should; where there is a tool that knows their format, it agrees."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from quiver import limits
from quiver.server.config import NodeConfig, _fields, load
from tests.server.nodes import ROOT

DEPLOY = ROOT / "deploy"


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


def test_the_configuration_has_every_key_with_its_default():
    path = DEPLOY / "node.toml"
    config = load(path, {})
    assert msgspec.structs.replace(config, data=Path("data")) == NodeConfig()
    told = {line.split("=")[0].strip("# ") for line in path.read_text().splitlines() if "=" in line}
    assert {keys[-1] for keys, _ in _fields(NodeConfig)} <= told


# -- Docker ----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_dockerfile_is_without_a_blemish():
    done = subprocess.run([tool("hadolint"), DEPLOY / "Dockerfile"], check=False)
    assert done.returncode == 0


def test_the_image_is_not_run_by_root_and_knows_whether_it_is_well():
    last = dict(instructions()[[name for name, _ in instructions()].index("FROM", 1) :])
    assert last["USER"] == "10001"
    assert last["VOLUME"] == "/var/lib/quiver"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert '"doctor", "--ready"' in last["HEALTHCHECK"]
    assert (last["ENTRYPOINT"], last["CMD"]) == ('["quiver"]', '["serve"]')


def test_what_the_image_is_told_is_known():
    told = dict(part.split("=", 1) for name, rest in instructions() if name == "ENV"
                for part in rest.split())  # fmt: skip
    config = load(None, told, {"insecure": True})
    assert config.listen == "0.0.0.0:7070"
    assert config.data == Path("/var/lib/quiver/data")
    assert config.log.format == "json"


def test_what_the_image_is_made_of_is_there():
    copied = [
        rest.split() for name, rest in instructions() if name == "COPY" and "--from" not in rest
    ]
    for source in [name for names in copied for name in names[:-1]]:
        assert (ROOT / source).exists()


def test_the_health_check_is_a_program_that_works(node):
    check = next(rest for name, rest in instructions() if name == "HEALTHCHECK")
    words = yaml.safe_load(check.partition("CMD ")[2])
    assert words[0] == "quiver"
    command = [sys.executable, "-m", "quiver.cli", *words[1:]]
    env = {**os.environ, "QUIVER_LISTEN": f"0.0.0.0:{node.port}"}
    assert subprocess.run(command, env=env, check=False, timeout=30).returncode == 0
    node.stop()
    done = subprocess.run(command, env=env, check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("quiver: there is no answer from 127.0.0.1")


def test_the_image_is_a_node_that_can_answer_questions_in_sql():
    assert any("'.[server,sql]'" in rest for name, rest in instructions() if name == "RUN")


def test_the_compose_file_keeps_the_node_on_this_machine():
    told = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = told["services"]["quiver"]
    assert service["ports"] == ["127.0.0.1:7070:7070"]
    assert service["command"] == ["serve", "--insecure"]  # which is right only because of the above
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert service["volumes"] == ["data:/var/lib/quiver"]
    assert "data" in told["volumes"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace > limits.DRAIN_SECONDS_MAX + limits.CLOSE_SECONDS_MAX
    assert service["ulimits"]["nofile"] > limits.CONNECTIONS_MAX


# -- systemd ---------------------------------------------------------------------------------------


def unit() -> dict[str, str]:
    lines = (DEPLOY / "quiver.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_unit_says_what_a_node_needs():
    told = unit()
    assert told["Type"] == "notify"
    assert "ProcSubset" not in told  # without /proc/stat there are no metrics of the process
    assert told["User"] == "quiver"
    assert told["Restart"] == "on-failure"
    assert told["ExecStart"].endswith("quiver serve --config /etc/quiver/node.toml")
    assert int(told["TimeoutStopSec"]) > limits.DRAIN_SECONDS_MAX + limits.CLOSE_SECONDS_MAX
    assert told["OOMPolicy"] == "continue"  # or the end of a process for SQL would be the node's
    assert int(told["LimitNOFILE"]) > limits.CONNECTIONS_MAX
    assert load(DEPLOY / "node.toml", {}).data.is_relative_to("/var/lib/" + told["StateDirectory"])


def test_systemd_understands_the_unit(tmp_path: Path):
    copy = tmp_path / "quiver.service"
    text = (DEPLOY / "quiver.service").read_text()
    copy.write_text(text.replace("/opt/quiver/bin/quiver", "/bin/true"))  # it must exist
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", copy], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_the_unit_well_locked_up():
    path = DEPLOY / "quiver.service"
    done = subprocess.run(
        [tool("systemd-analyze"), "security", "--offline=true", "--threshold=20", path],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.splitlines()[-1]
