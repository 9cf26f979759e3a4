"""deploy/kubernetes.yaml runs one node as the image and the node's own rules want it."""

from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from quiver import limits
from quiver.server.config import load
from tests.server.nodes import ROOT

MANIFEST = ROOT / "deploy" / "kubernetes.yaml"


@pytest.fixture(scope="module")
def parts():
    return {part["kind"]: part for part in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture(scope="module")
def pod(parts):
    return parts["StatefulSet"]["spec"]["template"]["spec"]


def dockerfile(name: str) -> list[str]:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def test_there_is_one_pod_and_it_alone_has_the_volume(parts):
    stateful = parts["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    assert stateful["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_everything_names_the_same_pod(parts):
    labels = parts["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert parts["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert parts["Service"]["spec"]["selector"] == labels
    assert parts["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert parts["StatefulSet"]["spec"]["serviceName"] == parts["Service"]["metadata"]["name"]


def test_it_is_given_the_time_that_a_node_needs_to_end(pod):
    wanted = limits.DRAIN_SECONDS_MAX + limits.CLOSE_SECONDS_MAX
    assert pod["terminationGracePeriodSeconds"] > wanted


def test_what_it_tells_the_node_is_known_and_asks_for_credentials(pod, tmp_path: Path):
    (container,) = pod["containers"]
    (image,) = dockerfile("ENV")
    variables = dict(part.split("=", 1) for part in image.split() if "=" in part)
    variables |= {one["name"]: one["value"] for one in container["env"]}
    access = tmp_path / "access.toml"
    access.write_text("")
    config = load(None, {**variables, "QUIVER_ACCESS_FILE": str(access)}, {})
    assert "quiver.quiver.svc" in config.hosts
    assert not config.insecure
    assert container["args"] == ["serve"]
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert {"/var/lib/quiver", str(Path(variables["QUIVER_ACCESS_FILE"]).parent)} <= mounts
    assert str(config.data).startswith("/var/lib/quiver/")


def test_the_user_is_the_image_s(pod):
    assert [str(pod["securityContext"]["runAsUser"])] == dockerfile("USER")
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_a_probe_asks_what_a_node_answers(pod, probe: str, node):
    (container,) = pod["containers"]
    told = container[probe]["httpGet"]
    assert told["port"] in [port["name"] for port in container["ports"]]
    with urlopen(node.url + told["path"], timeout=60) as answer:
        assert answer.status == 200
