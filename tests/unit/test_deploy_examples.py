"""What examples/deploy has is taken by those who read it: systemd, and the schemas of Kubernetes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documents import ROOT

from forebay.cli.main import load

DEPLOY = ROOT / "examples" / "deploy"
KUBERNETES = "1.34"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def flags_of_run() -> set[str]:
    return {flag for parameter in load("run").params for flag in parameter.opts}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["kind"])
def test_kubernetes_takes_each_object(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_driver_is_probed_and_ends_in_order_and_its_ports_are_those_of_its_service() -> None:
    [service] = [each for each in DOCUMENTS if each["kind"] == "Service"]
    [driver] = [each for each in DOCUMENTS if each["kind"] == "StatefulSet"]
    pod = driver["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert driver["spec"]["replicas"] == 1
    assert driver["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == driver["spec"]["template"]["metadata"]["labels"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "dashboard"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "dashboard"}
    assert pod["terminationGracePeriodSeconds"] >= 120
    conf = dict(each.removeprefix("--conf=").split("=", 1) for each in container["args"] if "--conf=" in each)
    assert (int(conf["spark.driver.port"]), int(conf["spark.blockManager.port"])) == (
        ports["spark"],
        ports["blocks"],
    )
    assert int(conf["spark.forebay.state.port"]) == ports["state"]


def test_both_run_commands_that_there_are() -> None:
    [driver] = [each for each in DOCUMENTS if each["kind"] == "StatefulSet"]
    in_pod = driver["spec"]["template"]["spec"]["containers"][0]["args"]
    unit = (DEPLOY / "forebay.service").read_text()
    [start] = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    by_systemd = shlex.split(start.removeprefix("ExecStart="))[1:]
    for command in (in_pod, by_systemd):
        assert command[0] == "run"
        assert {word.partition("=")[0] for word in command if word.startswith("--")} <= flags_of_run()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "forebay"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "forebay.service"
    text = (DEPLOY / "forebay.service").read_text()
    unit.write_text(text.replace("/opt/forebay/bin/forebay", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
