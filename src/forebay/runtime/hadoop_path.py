"""A place in a file system that Spark's own Hadoop client reaches (`hdfs://`), used like a `pathlib.Path`.

For checkpoints, and what they need: Spark writes them, we look into them. How the name node is reached, Spark's settings say
(`HADOOP_CONF_DIR`, `spark.hadoop.*`). Every call blocks while the name node is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from forebay.errors import OptionValueError, StorageError

P = ParamSpec("P")
R = TypeVar("R")

SCHEMES = ("hdfs", "viewfs")
REMEDY = (
    "it is tried again; check that the name node runs, and what HADOOP_CONF_DIR or spark.hadoop.* say of it"
)


def _named(call: Callable[P, R]) -> Callable[P, R]:
    """What the client refuses is one of our errors; a file that is not there is Python's."""

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        from py4j.protocol import Py4JJavaError, Py4JNetworkError

        try:
            return call(*args, **kwargs)
        except Py4JJavaError as error:
            raised = error.java_exception
            if raised.getClass().getName() == "java.io.FileNotFoundException":
                raise FileNotFoundError(str(args[0])) from None
            said = str(raised.getMessage() or raised.getClass().getName()).splitlines()[0]
            raise StorageError(f"{args[0]}: {said.partition(';')[0][:300]}", remedy=REMEDY) from None
        except Py4JNetworkError as error:
            raise StorageError(f"{args[0]}: Spark has ended: {error}", remedy="start it again") from None

    return guarded


class HadoopPath:
    """`str()` of it is its URL. It needs a Spark that runs in this process."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"HadoopPath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPath) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self._url}/{name}")

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @_named
    def is_file(self) -> bool:
        files, path = self._client()
        try:
            return bool(files.getFileStatus(path).isFile())
        except Exception as error:
            if "FileNotFoundException" in str(getattr(error, "java_exception", "")):
                return False
            raise

    @_named
    def _names(self) -> list[str]:
        files, path = self._client()
        return [str(each.getPath().getName()) for each in files.listStatus(path)]

    def iterdir(self) -> Iterator[HadoopPath]:
        """FileNotFoundError where there is no such folder."""
        return (self / name for name in self._names())

    def glob(self, pattern: str) -> Iterator[HadoopPath]:
        """What is right below it; nothing where there is no such folder."""
        try:
            names = self._names()
        except FileNotFoundError:
            return
        yield from (self / name for name in names if fnmatchcase(name, pattern))

    @_named
    def read_bytes(self) -> bytes:
        files, path = self._client()
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def unlink(self, missing_ok: bool = False) -> None:
        if not self._delete() and not missing_ok:
            raise FileNotFoundError(self._url)

    def remove_all(self) -> None:
        """It, and all that is below it."""
        self._delete()

    @_named
    def _delete(self) -> bool:
        files, path = self._client()
        return bool(files.delete(path, True))

    def _client(self) -> tuple[Any, Any]:
        """Hadoop's file system and path."""
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is None or context._jvm is None:
            raise StorageError(f"{self._url}: only a Spark that runs can reach it", remedy="start one")
        path = context._jvm.org.apache.hadoop.fs.Path(self._url)
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path


def hadoop_url(text: str) -> str:
    """A place for checkpoints. OptionValueError."""
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES:
        raise OptionValueError(
            f"'{text}' is no place for checkpoints",
            option="checkpoints",
            remedy="hdfs://host:port/folder, or viewfs://…; without the setting they are in the home",
        )
    if "@" in parts.netloc or parts.query:
        raise OptionValueError(
            "a place for checkpoints has no user, password or parameters in it",
            option="checkpoints",
            remedy="Hadoop's own settings have them: HADOOP_CONF_DIR, spark.hadoop.*",
        )
    return text.rstrip("/")
