"""``conf/deploy/``: files for service managers and containers, checked as far as this host can."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.archive.identity_file import IDENTITY_FILE_NAME
from cluster.node import config_text
from cluster.node.config import NodeConfig
from cluster.node.supervisor import RESTART_STATUS
from jobs.command import parser
from tests.programs import require
from tests.tree import ROOT

DEPLOY = ROOT / "conf" / "deploy"
UNIT = DEPLOY / "cluster-node.service"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


class Sections(configparser.ConfigParser):
    optionxform = staticmethod(str)  # type: ignore[assignment]


def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    unit = Sections(strict=True, interpolation=None)
    unit.read(UNIT)
    service = unit["Service"]
    assert service["Type"] == "notify" and service["Restart"] == "always"
    assert service["RestartForceExitStatus"] == str(RESTART_STATUS)
    assert service["RestartPreventExitStatus"] == "2"  # ConfigurationError's
    assert service["KillMode"] == "mixed", "no process that a member is about to end is ended by a signal"
    assert unit["Unit"]["AssertPathExists"].endswith(f"/cluster/{IDENTITY_FILE_NAME}")
    command = [require("systemd-analyze", "systemd"), "verify", str(UNIT)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
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
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {port["name"]: port["port"] for port in found["Service"]["spec"]["ports"]}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics", "scheme": "HTTPS"}
    assert pod_config(0).metrics_address == f"cluster-0.cluster:{ports['metrics']}"


def pod_config(member_id: int) -> NodeConfig:
    keys = tomllib.loads(documents()["ConfigMap"]["data"]["node.toml"])
    return config_text.load(overrides={**keys, "member_id": member_id}, environment={})


@pytest.mark.parametrize("member_id", [0, 1, 2])
def test_each_pod_has_a_configuration_that_a_member_takes(member_id: int) -> None:
    config = pod_config(member_id)
    assert len(config.members) == documents()["StatefulSet"]["spec"]["replicas"] == 3
    assert config.snapshot_every_bytes and config.log_retained_snapshots and config.disk_free_min
    assert config.member.ingress_endpoint == f"cluster-{member_id}.cluster:9000"
    assert config.tls_files is not None and config.tls_files.key.endswith(f"member-{member_id}.key")


def test_each_container_of_compose_has_a_configuration_that_a_member_takes() -> None:
    content = COMPOSE["configs"]["node"]["content"]
    members = {name: service for name, service in COMPOSE["services"].items() if name.startswith("member-")}
    scraped = []
    for member_id, (name, service) in enumerate(members.items()):
        config = config_text.load(overrides=tomllib.loads(content), environment=service["environment"])
        assert (config.member_id, config.member.ingress_endpoint) == (member_id, f"{name}:9000")
        assert config_text.unknown_variables(service["environment"]) == []
        assert config.snapshot_every_bytes and config.log_retained_snapshots and config.disk_free_min
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        [volume] = service["volumes"]
        assert volume.partition(":")[0] in COMPOSE["volumes"]
        scraped.append(config.metrics_address)
    assert len(members) == len(config.members) == 3
    [job] = yaml.safe_load(COMPOSE["configs"]["scrapes"]["content"])["scrape_configs"]
    assert job["job_name"] == "cluster" and job["static_configs"] == [{"targets": scraped}]


def test_beside_the_members_compose_runs_a_job_of_spark_prometheus_and_grafana() -> None:
    services, configs = COMPOSE["services"], COMPOSE["configs"]
    assert {"spark", "prometheus", "grafana"} < set(services)
    given = parser("log_to_delta", "", "").parse_known_args(services["spark"]["command"][2:])
    assert services["spark"]["command"][:2] == ["job", "log_to_delta"] and given[0].trigger
    for name in ("prometheus", "grafana"):
        for config in services[name]["configs"]:
            source = configs[config["source"]]
            assert "content" in source or (DEPLOY / source["file"]).is_file()
    [provider] = yaml.safe_load(configs["dashboards"]["content"])["providers"]
    [dashboard] = [c["target"] for c in services["grafana"]["configs"] if c["source"] == "dashboard"]
    assert dashboard.startswith(provider["options"]["path"])


def test_the_image_is_built_of_what_there_is_and_runs_as_nobody_in_particular() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert [name for name in sources.split() if not (ROOT / name).exists()] == []
    for module in re.findall(r"-m (cluster\S+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    default = re.findall(r"^ARG EXTRA=(\w+)$", text, re.MULTILINE)
    assert default == ["node"] and 'pip install ".[${EXTRA}]"' in text, "the package alone is a client"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"node", COMPOSE["services"]["spark"]["build"]["args"]["EXTRA"]} <= set(extras)
    users = re.findall(r"^USER (.*)$", text, re.MULTILINE)
    assert users == [
        str(documents()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"])
    ]


@pytest.mark.interop  # packages are fetched
@pytest.mark.timeout(600)
def test_the_steps_that_build_the_image_make_an_installation_that_has_what_a_member_needs(
    tmp_path: Path,
) -> None:
    """All but the compilation, which takes minutes: what that imports is there."""
    stage = (DEPLOY / "Containerfile").read_text().split("\nFROM ")[1]
    stage = stage.replace("/opt/cluster", f"{tmp_path}/opt")
    sources, installation = tmp_path / "src", tmp_path / "opt" / "bin"
    sources.mkdir()
    for names in re.findall(r"^COPY (.*) \S+$", stage, re.MULTILINE):
        subprocess.run(["cp", "-r", *names.split(), str(sources)], cwd=ROOT, check=True)
    settings = re.findall(r"^(?:ARG|ENV) (.*)$", stage, re.MULTILINE)
    [steps] = re.findall(r"^RUN ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    steps = "".join(f"export {setting}\n" for setting in settings) + steps
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    runs = partial(subprocess.run, env=environment, cwd=sources, capture_output=True, text=True)
    built = runs(["sh", "-ec", steps.replace("-m cluster.log.warm", "-c 'import numba, numpy, pyarrow'")])
    assert built.returncode == 0, built.stderr
    helped = runs([f"{installation}/cluster", "node", "--help"])
    assert helped.returncode == 0 and "--check" in helped.stdout, helped.stderr
