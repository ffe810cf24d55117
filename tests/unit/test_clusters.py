"""What a Spark on other machines is given, and what is said of workers that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli.spark_options import conf_of
from forebay.errors import OptionValueError, UnreachableError, from_text
from forebay.runtime import clusters
from forebay.source import versions


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[2,1,512]", False),
        ("spark://a:7077", False), ("yarn", False), ("k8s://https://a:6443", False),
    ],
)  # fmt: skip
def test_what_is_this_machine(master: str, local: bool) -> None:
    assert clusters.is_local(master) == local


def test_masters_of_a_cluster_are_found_in_its_address() -> None:
    assert clusters.addresses("spark://a:7077,[::1]:7078") == [("a", 7077), ("::1", 7078)]
    assert clusters.addresses("yarn") == []
    assert clusters.on_loopback("spark://127.0.0.1:7077,localhost:7078")
    assert not clusters.on_loopback("spark://127.0.0.1:7077,a:7078")


def test_a_master_that_does_not_answer_is_named() -> None:
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and not listened at
        master = f"spark://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=f"no Spark master answers at {master}"):
            clusters.check_reachable(master)


def test_shuffles_have_as_many_partitions_as_tasks_can_run() -> None:
    def partitions(**conf: str) -> str | None:
        given = {f"spark.{key.replace('_', '.')}": value for key, value in conf.items()}
        return clusters.settings("yarn", given, None).get("spark.sql.shuffle.partitions")

    assert partitions() is None  # as many as there are when the first executor has come
    assert partitions(cores_max="6") == "6"
    assert partitions(executor_instances="3", executor_cores="4") == "12"
    assert partitions(dynamicAllocation_maxExecutors="1000") == "200"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            'Lost task 0.3 in stage 1.0 (TID 5) (10.0.0.7 executor 2): java.io.IOException: Cannot run program "python3.11": error=2',
            "the worker on 10.0.0.7 has no program 'python3.11'",
        ),
        (
            "(TID 1) (w1 executor 0): org.apache.spark.SparkException: \nError from python worker:\n"
            "  Error while finding module specification for 'forebay.source.worker_daemon' "
            "(ModuleNotFoundError: No module named 'forebay')",
            "the worker on w1 has a Python without Forebay",
        ),
    ],
)
def test_a_worker_without_forebay_is_said_to_be_so_with_the_remedy(said: str, expected: str) -> None:
    error = clusters.not_set_up(said)
    assert error is not None
    assert error.message.startswith(expected)
    assert "forebay pack" in error.remedy
    assert clusters.not_set_up("java.lang.OutOfMemoryError") is None


@pytest.mark.parametrize("part", ["python", "forebay", "forebay-native", "pyarrow", "pyspark"])
def test_a_worker_of_other_versions_ends_before_it_does_anything(part: str) -> None:
    driver = {**versions.own(), part: "0.0"}
    done = subprocess.run(
        [sys.executable, "-c", "from forebay.source.versions import check_environment; check_environment()"],
        env={**os.environ, versions.DRIVER: versions.to_text(driver)}, capture_output=True, text=True,
    )  # fmt: skip
    error = from_text(done.stderr)
    assert error is not None
    assert error.code == "FB4030"
    assert f"it has {part} {versions.own()[part]}, the driver 0.0" in error.message
    assert "forebay pack" in error.remedy


def test_versions_that_are_the_same_pass() -> None:
    versions.check(versions.from_text(versions.to_text(versions.own())))


def test_settings_of_the_command_line_are_sparks() -> None:
    assert conf_of(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong in "spark.a", "executor.memory=4g":
        with pytest.raises(OptionValueError, match="no setting of Spark"):
            conf_of([wrong])


def test_an_image_is_of_this_python_and_this_spark(tmp_path: Path) -> None:
    import pyspark

    from forebay.runtime.image import write_dockerfile

    write_dockerfile(tmp_path / "Dockerfile", tmp_path / "env.tar.gz")
    made = (tmp_path / "Dockerfile").read_text()
    assert f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim" in made
    assert f"pyspark=={pyspark.__version__}" in made
    assert "ADD env.tar.gz /opt/forebay/" in made
    assert "@" not in made.replace('"$@"', "")


def test_an_image_runs_executors_and_every_command(tmp_path: Path) -> None:
    from forebay.runtime.image import write_dockerfile

    write_dockerfile(tmp_path / "Dockerfile", tmp_path / "env.tar.gz")
    joined = (tmp_path / "Dockerfile").read_text().replace("\\\n", "")
    [step] = [line for line in joined.splitlines() if "> /opt/entrypoint.sh" in line]
    script = tmp_path / "entrypoint.sh"
    made = step.removeprefix("RUN ").split("    && chmod")[0].replace("/opt/entrypoint.sh", str(script))
    subprocess.run(["sh", "-c", made], check=True)
    (tmp_path / "tini").write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\n')
    (tmp_path / "tini").chmod(0o755)

    def run(*arguments: str) -> list[str]:
        names = "DRIVER_URL EXECUTOR_ID EXECUTOR_CORES APPLICATION_ID EXECUTOR_POD_IP RESOURCE_PROFILE_ID EXECUTOR_POD_NAME"
        given = {f"SPARK_{name}": f"[{name}]" for name in names.split()}
        given |= {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd", "SPARK_EXECUTOR_MEMORY": "1g"}
        given |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/spark", "PYTHONPATH": "/given"}
        done = subprocess.run(
            ["sh", str(script), *arguments], env=given, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    path, *command = run("executor")
    assert path == "/opt/forebay:/opt/forebay/forebay/source/start:/given"
    assert command[:8] == ["-s", "--", "java", "-Da=b c", "-Dd", "-Xms1g", "-Xmx1g", "-cp"]
    assert command[9:] == [
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", "--driver-url", "[DRIVER_URL]",
        "--executor-id", "[EXECUTOR_ID]", "--cores", "[EXECUTOR_CORES]", "--app-id", "[APPLICATION_ID]",
        "--hostname", "[EXECUTOR_POD_IP]", "--resourceProfileId", "[RESOURCE_PROFILE_ID]", "--podName", "[EXECUTOR_POD_NAME]",
    ]  # fmt: skip
    assert run("run", "a b.sql")[1:] == ["--", "python3", "-m", "forebay", "run", "a b.sql"]
