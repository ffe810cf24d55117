"""What a Spark on other machines needs beside what one on this machine needs.

The pipeline is the same. Executors get the environment of the driver as an archive (`forebay pack`), or have the same one at the
same path; they compare their versions with the driver's before they run anything (`source/worker_daemon.py`).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from forebay import source
from forebay.errors import UnreachableError, WorkerSetupError
from forebay.runtime import packing
from forebay.source import versions

log = logging.getLogger("forebay.spark")

FOLDER = "forebay_env"  # where executors unpack the archive, below the folder they run in
START = Path("forebay") / "source" / "start"  # what their Python processes run first
PROBE_S = 5.0
FIRST_EXECUTOR_S = 15.0  # what is planned before has to guess how many tasks can run at a time
MANY = 200  # Spark's own number of shuffle partitions: no cluster gets more than that unasked


def is_local(master: str) -> bool:
    """Whether tasks run in the process of the driver's JVM."""
    return master.startswith("local") and not master.startswith("local-cluster")


def is_yarn(master: str) -> bool:
    """Whether YARN starts the executors. Its client asks each file system for its scheme, which Hadoop's raw one does not know."""
    return master == "yarn"


def settings(master: str, conf: Mapping[str, str], archive: str | Path | None) -> dict[str, str]:
    """For executors elsewhere. ArchiveError if the archive is not for this Python and this Forebay."""
    made = {
        f"spark.executorEnv.{versions.DRIVER}": versions.to_text(versions.own()),
        # Each machine has these in its own folder for temporary files: the driver's is not there. That of a container of
        # YARN's has a path that is too long for a socket.
        "spark.python.unix.domain.socket.enabled": str(not is_yarn(master)).lower(),
    }
    if "FOREBAY_NATIVE" in os.environ:
        made["spark.executorEnv.FOREBAY_NATIVE"] = os.environ["FOREBAY_NATIVE"]
    path = [str(Path(source.__file__).with_name("start"))]
    if archive is not None:
        packing.check(archive)
        made["spark.archives"] = ",".join(filter(None, (conf.get("spark.archives"), f"{archive}#{FOLDER}")))
        path = [FOLDER, str(Path(FOLDER) / START)]
    given = conf.get("spark.executorEnv.PYTHONPATH")
    made["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, (*path, given)))
    if on_loopback(master):
        made |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if (cores := _cores(conf)) is not None:
        made["spark.default.parallelism"] = str(cores)
        made["spark.sql.shuffle.partitions"] = str(min(cores, MANY))
    return made


def python(master: str, archive: str | Path | None, conf: Mapping[str, str]) -> str:
    """The command that executors start Python with, and the driver, for what it plans, too.

    With an archive, or an image, it is a name that each machine finds on its PATH. `python_folder` is where the driver finds it.
    """
    if given := conf.get("spark.pyspark.python"):
        return given
    if archive is None and not master.startswith("k8s://"):
        return sys.executable
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3", "python")
    return next((name for name in names if (python_folder() / name).exists()), sys.executable)


def python_folder() -> Path:
    return Path(sys.executable).parent


def on_loopback(master: str) -> bool:
    """Whether all of a cluster's masters are on this machine and reached by its loopback: then so is the driver."""
    hosts = [host for host, _ in addresses(master)]
    return bool(hosts) and all(_is_loopback(host) for host in hosts)


def addresses(master: str) -> list[tuple[str, int]]:
    """Of the masters of a standalone cluster; none of other ones."""
    if not master.startswith("spark://"):
        return []
    found = (re.fullmatch(r"\[?(.+?)\]?:(\d+)", each) for each in master.removeprefix("spark://").split(","))
    return [(match[1], int(match[2])) for match in found if match]


def check_reachable(master: str) -> None:
    """UnreachableError if no master answers. Spark would try for a minute, and then say that it was stopped."""
    asked = addresses(master)
    why = ""
    for address in asked:
        try:
            socket.create_connection(address, timeout=PROBE_S).close()
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return
    if asked:
        raise UnreachableError(
            f"no Spark master answers at {master}: {why}",
            remedy="see that it runs (its page shows its URL), and that this machine reaches its port",
        )


def await_executor(spark: SparkSession, master: str) -> None:
    """Until the first executor has registered, or for a while: those that come later are used as well."""
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + FIRST_EXECUTOR_S
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if time.monotonic() > deadline:
            log.warning(
                "no executor has registered at %s yet: nothing is read before one does. See on the cluster's page whether "
                "a worker has the cores and the memory that are asked for",
                master,
            )
            return
        time.sleep(0.05)
    if "spark.sql.shuffle.partitions" not in dict(spark.sparkContext.getConf().getAll()):
        cores = spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(min(cores, MANY)))


def not_set_up(message: str) -> WorkerSetupError | None:
    """What Spark says of a worker that has no Python, or one without Forebay, in our words."""
    if match := re.search(r'Cannot run program "([^"]+)"', message):
        why = f"has no program '{match[1]}'"
    elif match := re.search(r"No module named '?(?:forebay|pyspark)\b[\w.]*'?", message):
        why = f"has a Python without Forebay: {match[0]}"
    else:
        return None
    host = re.search(r"\(TID \d+\) \((\S+) executor", message)
    return WorkerSetupError(f"the worker on {host[1]} {why}" if host else f"a worker {why}")


def _cores(conf: Mapping[str, str]) -> int | None:
    """How many tasks can run at a time, where the settings say so."""
    if "spark.default.parallelism" in conf:
        return int(conf["spark.default.parallelism"])
    if "spark.cores.max" in conf:
        return int(conf["spark.cores.max"])
    executors = conf.get("spark.dynamicAllocation.maxExecutors") or conf.get("spark.executor.instances")
    return None if executors is None else int(executors) * int(conf.get("spark.executor.cores", "1"))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
