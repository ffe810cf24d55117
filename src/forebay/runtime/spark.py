"""The SparkSession that Forebay runs on, with the settings it needs and nothing that a user set overridden."""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from forebay import source
from forebay.jvm.classes import ClassArchive
from forebay.jvm.java import find_java
from forebay.jvm.stderr import Stderr
from forebay.object_path import HANDED, store_settings
from forebay.runtime import clusters
from forebay.runtime.state_server import StateServer
from forebay.source.control import WatermarkSource
from forebay.source.datasource import ForebaySource

log = logging.getLogger("forebay.spark")

TASK_FAILURES = 4  # as on a cluster; plain local[N] would fail a query on the first lost Python worker

# What queries need. They are settings of a session, so a user's own session beside it keeps its own.
OF_A_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}
DEFAULTS = {
    **OF_A_SESSION,
    "spark.app.name": "forebay",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
SET_BY_EACH_QUERY = (
    "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME",
)  # fmt: skip
SOCKET_PATH = 103  # bytes that the path of a socket may have
SOCKET_NAME = 48  # those of it that are Spark's name
# Spark's default for redacting options in plans and logs, and what our options add to it.
REDACTION = r"(?i)secret|password|token|access[.]?key|passphrase|[.]pem$|credential"


def is_running() -> bool:
    """Whether this process has a Spark already: then a session works beside what uses it, and leaves it running."""
    return SparkContext._active_spark_context is not None


def settings() -> dict[str, str]:
    """Of the Spark that this process has: every session of it begins with them."""
    context = SparkContext._active_spark_context
    return {} if context is None else dict(context.getConf().getAll())


def beside(conf: Mapping[str, str]) -> SparkSession:
    """A session of our own on the Spark that this process has, with the data source `forebay` registered.

    Time zone, shuffle partitions and temporary views are the session's, so the user's stay as they are. What belongs to
    Spark as a whole (log level, memory, the daemon of its workers) is not touched.
    """
    running = SparkSession.builder.getOrCreate()
    spark = running.newSession()
    settings = {**OF_A_SESSION, "spark.sql.redaction.options.regex": REDACTION + "|url"}
    if clusters.is_local(spark.sparkContext.master):
        settings["spark.sql.shuffle.partitions"] = str(spark.sparkContext.defaultParallelism)
    fixed = []
    for key, value in {**settings, **conf}.items():
        try:
            spark.conf.set(key, value)
        except PySparkException:
            if running.sparkContext.getConf().get(key) != value:
                fixed.append(key)
    if fixed:
        log.warning(
            "a Spark runs in this process already, and %s cannot be changed on it: set it where that one is started",
            ", ".join(fixed),
        )
    register(spark)
    return spark


def start(
    master: str, conf: Mapping[str, str], warehouse: Path, archive: str | Path | None = None
) -> SparkSession:
    """A Spark of its own settings, with the data source `forebay` registered. None may run in this process.

    `archive`: what `forebay pack` has made, for the executors of a cluster.
    """
    local = clusters.is_local(master)
    # Workers must run in this interpreter, or in one like it: that is where the dependencies are.
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable if local else clusters.python(master, archive, conf)
    )
    if local or clusters.on_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": _with_retries(master),
        **DEFAULTS,
        "spark.driver.extraJavaOptions": " ".join(_java_flags()),
        "spark.sql.redaction.options.regex": REDACTION + "|url",
        "spark.redaction.regex": REDACTION,
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.python.daemon.module": "forebay.source.worker_daemon",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    if not clusters.is_yarn(master):
        # A micro-batch writes two files to its checkpoint. Hadoop's usual way starts a process to set the
        # permissions of each, and of a checksum that is thrown away: 50 ms a file that go for nothing.
        settings["spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.RawLocalFileSystem"
    if local:
        # The default of 200 would mean 200 tasks for a batch of ten rows.
        settings["spark.sql.shuffle.partitions"] = str(_cores(master))
        settings |= {**LOOPBACK, **_sockets(), **conf}
    else:
        clusters.check_reachable(master)
        settings |= {**conf, **clusters.settings(master, conf, archive)}
        settings |= {key: conf[key] for key in conf if key.startswith("spark.driver.")}
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    paths = {"PYTHONPATH": Path(source.__file__).with_name("start")}
    if not local:
        paths["PATH"] = clusters.python_folder()  # where a name is found that means this Python
    with _first_on(paths), _own_interrupts():
        _launch(settings)
        spark = builder.getOrCreate()
    # A query's failure reaches the user as one of our errors; Spark's own log says it again, in Scala, and
    # PySpark's and py4j's once more each, with the whole plan in one line of JSON and with a traceback.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    spark.sparkContext.setLogLevel(os.environ.get("FOREBAY_SPARK_LOG", "OFF"))
    register(spark)
    if not local:
        clusters.await_executor(spark, master)
    return spark


def serve_state(spark: SparkSession) -> StateServer | None:
    """Where tasks run on other machines: what gives them the driver's checkpoints, and lets this session's tasks in."""
    context = spark.sparkContext
    if clusters.is_local(context.master):
        return None
    conf = dict(context.getConf().getAll())
    host = conf["spark.driver.host"]
    server = StateServer(
        host, conf.get("spark.driver.bindAddress") or host, int(conf.get("spark.forebay.state.port", "0"))
    )
    for key, value in server.settings().items():
        spark.conf.set(key, value)
    return server


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM as PySpark would, but for what it says on stderr. One that was started before stays."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    said = Stderr()
    try:
        try:
            conf = SparkConf().setAll(list(settings.items()))
            gateway = launch_gateway(conf, {"stderr": said.into})
        finally:
            said.close()
    except BaseException:
        said.wait_for_end()
        raise
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _first_on(paths: Mapping[str, Path]) -> Iterator[None]:
    """The JVM that starts meanwhile, and the processes that it starts, look into these folders first, by variable."""
    before = {name: os.environ.get(name) for name in paths}
    for name, folder in paths.items():
        os.environ[name] = os.pathsep.join(filter(None, (str(folder), before[name])))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Ctrl-C means what it meant before. PySpark would cancel every job, those of the views among them."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def hand_over_stores(spark: SparkSession) -> None:
    """What the environment says of object stores now reaches the processes that plan, which Spark starts with its own.

    By a variable that is theirs alone: it is in no file, no setting of Spark's and no plan.
    """
    known, now = spark.sparkContext.environment, json.dumps(store_settings())
    if known.get(HANDED) != now:
        known[HANDED] = now
        register(spark)


def register(spark: SparkSession) -> None:
    """Make `format("forebay")` known to a SparkSession of your own, for `read` and `readStream`.

    All queries of a session share one Java map, the environment of the data source's workers. Each query
    that starts puts four entries into it, while another may be writing the map into its tasks: a new entry
    between the map's size and its end makes tasks that cannot be read. So the entries are there beforehand.
    """
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update({name: before.get(name, "") for name in SET_BY_EACH_QUERY})
    # Spark asks the session that is active in this thread whether the name is taken, not the one that registers it.
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(ForebaySource)
        spark.dataSource.register(WatermarkSource)
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        environment.clear()
        environment.update(before)


def _sockets() -> dict[str, str]:
    """Sockets of the file system between Spark and its Python workers, in a folder that nobody else may enter.

    Over TCP the second of the two short messages that begin a task waits until the first is acknowledged: 40 ms.
    """
    folder = tempfile.mkdtemp(prefix="forebay-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) + SOCKET_NAME > SOCKET_PATH:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


def _java_flags() -> list[str]:
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    # One Python traceback too long for Spark's regular expression overflows the JVM's default stack.
    flags = ["-Xss16m", f"-Dlog4j2.configurationFile={log}"]
    # Half of what Spark takes to start is Java reading classes from jars. The archive lives and dies with
    # the environment that holds the jars; what Java has to say about it, nobody needs to read.
    folder = Path(sys.prefix) / "share" / "forebay"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK) and "SPARK_HOME" not in os.environ:
        folder.mkdir(parents=True, exist_ok=True)
        flags += [*ClassArchive(folder, find_java()).flags(), "-Xlog:disable", "-Xlog:all=error:stderr"]
    return flags


def _with_retries(master: str) -> str:
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{match[1] or 1},{TASK_FAILURES}]" if match else master


def _cores(master: str) -> int:
    match = re.match(r"local\[(\*|\d+)", master)
    if not match:
        return 1
    return os.cpu_count() or 1 if match[1] == "*" else int(match[1])
