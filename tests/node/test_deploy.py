"""``conf/deploy/``: files for service managers and containers, checked as far as this host can."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from cluster.archive.identity_file import IDENTITY_FILE_NAME
from cluster.node import config_text
from cluster.node.supervisor import RESTART_STATUS
from tests.tree import ROOT

DEPLOY = ROOT / "conf" / "deploy"
UNIT = DEPLOY / "cluster-node.service"


class Sections(configparser.ConfigParser):
    optionxform = staticmethod(str)  # type: ignore[assignment]


def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    unit = Sections(strict=True, interpolation=None)
    unit.read(UNIT)
    service = unit["Service"]
    assert service["Type"] == "notify" and service["Restart"] == "always"
    assert service["RestartForceExitStatus"] == str(RESTART_STATUS)
    assert service["RestartPreventExitStatus"] == "2"  # ConfigurationError's
    assert unit["Unit"]["AssertPathExists"].endswith(f"/cluster/{IDENTITY_FILE_NAME}")
    if (program := shutil.which("systemd-analyze")) is not None:
        said = subprocess.run(
            [program, "verify", str(UNIT)], capture_output=True, text=True, timeout=60
        ).stderr
        of_us = [line for line in said.splitlines() if UNIT.name in line]
        assert [line for line in of_us if "/opt/cluster/bin/cluster is not executable" not in line] == []


def test_logs_are_rotated_by_the_signal_that_opens_them_again() -> None:
    text = (DEPLOY / "cluster.logrotate").read_text()
    assert text.count("{") == text.count("}") == 1
    assert "--signal=HUP" in text and "copytruncate" not in text


def documents() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "statefulset.yaml").read_text())
    return {document["kind"]: document for document in found}


def test_the_parts_of_the_stateful_set_fit_together() -> None:
    found = documents()
    assert set(found) == {"Service", "PodDisruptionBudget", "ConfigMap", "StatefulSet"}
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert spec["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["clusterIP"] == "None"
    for selector in (
        spec["selector"]["matchLabels"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == spec["template"]["metadata"]["labels"] == found["Service"]["spec"]["selector"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert config_text.unknown_variables({variable["name"]: "" for variable in container["env"]}) == []
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {port["port"] for port in found["Service"]["spec"]["ports"]}


@pytest.mark.parametrize("member_id", [0, 1, 2])
def test_each_pod_has_a_configuration_that_a_member_takes(member_id: int) -> None:
    keys = tomllib.loads(documents()["ConfigMap"]["data"]["node.toml"])
    config = config_text.load(overrides={**keys, "member_id": member_id}, environment={})
    assert len(config.members) == documents()["StatefulSet"]["spec"]["replicas"] == 3
    assert config.snapshot_every_bytes and config.log_retained_snapshots and config.disk_free_min
    assert config.member.ingress_endpoint == f"cluster-{member_id}.cluster:9000"
    assert config.tls_files is not None and config.tls_files.key.endswith(f"member-{member_id}.key")


def test_each_container_of_compose_has_a_configuration_that_a_member_takes() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    content = compose["configs"]["node"]["content"]
    for member_id, (name, service) in enumerate(compose["services"].items()):
        config = config_text.load(overrides=tomllib.loads(content), environment=service["environment"])
        assert (config.member_id, config.member.ingress_endpoint) == (member_id, f"{name}:9000")
        assert config_text.unknown_variables(service["environment"]) == []
        assert config.snapshot_every_bytes and config.log_retained_snapshots and config.disk_free_min
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        [volume] = service["volumes"]
        assert volume.partition(":")[0] in compose["volumes"]
    assert len(compose["services"]) == len(config.members) == 3


def test_the_image_is_built_of_what_there_is_and_runs_as_nobody_in_particular() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert [name for name in sources.split() if not (ROOT / name).exists()] == []
    for module in re.findall(r"-m (cluster\S+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    users = re.findall(r"^USER (.*)$", text, re.MULTILINE)
    assert users == [
        str(documents()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"])
    ]
