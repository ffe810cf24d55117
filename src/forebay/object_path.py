"""A place in an object store (`s3://`, `gs://`, `az://`), used like a `pathlib.Path`.

What is put there is whole and durable when the call returns, so nothing is forced to a disk and no draft is renamed. There are
no folders: a name with slashes is all that there is. Credentials are in the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION`,
`AWS_ENDPOINT_URL`, …, as deltalake takes them), never in a place's text.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar
from urllib.parse import urlsplit

from forebay.errors import ForebayError, OptionValueError, StorageError, from_text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

P = ParamSpec("P")
R = TypeVar("R")

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "azure")
OF_STORES = ("AWS_", "AZURE_", "GOOGLE_")  # how the names of variables begin that say how a store is reached
RETRIES, PATIENCE_S = (
    8,
    30,
)  # of one call, with growing pauses: a batch that waits longer fails, and is repeated
SMALL = 8 << 20  # bytes: a file up to this size is read with one call


@dataclass(frozen=True)
class ObjectStat:
    """Named as `os.stat_result` names them."""

    st_size: int
    st_mtime: float
    e_tag: str | None = None


def _named(call: Callable[P, R]) -> Callable[P, R]:
    """A call to a store: what it refuses is one of our errors. FileNotFoundError and FileExistsError stay what they are."""

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

        try:
            return call(*args, **kwargs)
        except AlreadyExistsError:
            raise FileExistsError(str(args[0])) from None
        except PreconditionError:
            raise FileExistsError(f"{args[0]} was changed by somebody else") from None
        except (FileNotFoundError, NotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise refused(str(args[0]), error) from None
            raise FileNotFoundError(str(args[0])) from None
        except BaseError as error:
            raise refused(str(args[0]), error) from None

    return guarded


class ObjectPath:
    """`str()` of it is its URL."""

    def __init__(self, url: str, known: ObjectStat | None = None) -> None:
        self._url = url.rstrip("/")
        self._known = known  # by a listing, for whoever asks right after it

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"ObjectPath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: ObjectPath) -> bool:
        return self._url < other._url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self._url}/{name}") if name else self

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self._url.rpartition("/")[0])

    @property
    def _place(self) -> tuple[Any, str]:
        """The store, and the key in it."""
        parts = urlsplit(self._url)
        settings = tuple(sorted(store_settings().items()))
        return _store(f"{parts.scheme}://{parts.netloc}", settings, os.getpid()), parts.path.lstrip("/")

    @_named
    def stat(self) -> ObjectStat:
        import obstore

        if self._known is not None:
            return self._known
        return _stat(obstore.head(*self._place))

    def exists(self) -> bool:
        """Whether there is an object of this name, or one below it."""
        try:
            self.stat()
        except FileNotFoundError:
            return self._has_below()
        return True

    @_named
    def _has_below(self) -> bool:
        import obstore

        store, key = self._place
        return any(obstore.list(store, key + "/", chunk_size=1))

    @_named
    def read_bytes(self) -> bytes:
        import obstore

        return bytes(obstore.get(*self._place).bytes())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    @_named
    def write_bytes(self, data: bytes) -> None:
        import obstore

        obstore.put(*self._place, data)

    @_named
    def create(self, data: bytes) -> str | None:
        """Returns its tag. FileExistsError if it is there. Who is told so may have made it itself, if an answer was lost on the way."""
        import obstore

        return obstore.put(*self._place, data, mode="create")["e_tag"]

    @_named
    def replace_if(self, data: bytes, e_tag: str | None) -> str | None:
        """Returns its tag. FileExistsError if it is not what it was, by the tag that it had."""
        import obstore

        return obstore.put(*self._place, data, mode={"e_tag": e_tag})["e_tag"]

    def touch(self) -> None:
        self.write_bytes(b"")

    def mkdir(self, **_: Any) -> None:
        """There are no folders."""

    @_named
    def _delete(self) -> None:
        import obstore

        obstore.delete(*self._place)

    def unlink(self, missing_ok: bool = False) -> None:
        """A store does not say whether it was there."""
        try:
            self._delete()
        except FileNotFoundError:
            if not missing_ok:
                raise

    @_named
    def remove_all(self) -> None:
        """All objects below it."""
        import obstore

        store, key = self._place
        for chunk in obstore.list(store, key + "/"):
            obstore.delete(store, [each["path"] for each in chunk])

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Objects right below it. What a listing knows of them needs no further call."""
        for each in self._objects():
            name = each["path"].rpartition("/")[2]
            if fnmatchcase(name, pattern):
                yield ObjectPath(f"{self._url}/{name}", _stat(each))

    @_named
    def _objects(self) -> list[Mapping[str, Any]]:
        import obstore

        store, key = self._place
        return list(obstore.list_with_delimiter(store, key + "/")["objects"])

    @_named
    def open_input(self) -> Any:
        """For Parquet's reader. A small file is there at once."""
        import obstore
        import pyarrow as pa

        store, key = self._place
        if obstore.head(store, key)["size"] <= SMALL:
            return pa.BufferReader(bytes(obstore.get(store, key).bytes()))
        return pa.PythonFile(_Reading(obstore.open_reader(store, key)), mode="r")

    @_named
    def open_output(self) -> Any:
        """For Parquet's writer: sent in parts, and there as a whole when it is closed."""
        import obstore
        import pyarrow as pa

        return pa.PythonFile(_Writing(self, obstore.open_writer(*self._place)), mode="w")


TablePath: TypeAlias = Path | ObjectPath


def is_url(text: str) -> bool:
    return "://" in text


def table_path(text: str) -> TablePath:
    """Where a table is: a URL of an object store, or a folder of this machine. OptionValueError."""
    if not is_url(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(parts.path)
    if parts.scheme in ("hdfs", "viewfs", "webhdfs"):
        raise OptionValueError(
            f"'{parts.scheme}://' is no place for tables: tasks write them without Hadoop",
            remedy=f"a path, also of a mounted HDFS (NFS gateway, FUSE), or {', '.join(f'{each}://…' for each in SCHEMES[:4])}; "
            "checkpoints may be there: --checkpoints hdfs://…",
        )
    if parts.scheme not in SCHEMES:
        raise OptionValueError(
            f"'{parts.scheme}://' is no place for tables",
            remedy=f"a path, or {', '.join(f'{each}://…' for each in SCHEMES[:4])}",
        )
    if "@" in parts.netloc or parts.query:
        raise OptionValueError(
            "a place for tables has no user, password or parameters in it",
            remedy="credentials are taken from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …",
        )
    if not parts.netloc:
        raise OptionValueError(f"{text} names no bucket", remedy=f"{parts.scheme}://bucket/prefix")
    return ObjectPath(text)


def files_in(folder: TablePath, pattern: str) -> list[TablePath]:
    """Those right below it, by name; none where there is no such folder."""
    return sorted(folder.glob(pattern), key=lambda each: each.name)


def names_in(folder: TablePath) -> list[str]:
    """Of what is right below it, in no order; none where there is no such folder. For folders of many files."""
    if isinstance(folder, ObjectPath):
        return [each.name for each in folder.glob("*")]
    try:
        return os.listdir(folder)  # noqa: PTH208 - a Path for each takes ten times as long
    except FileNotFoundError:
        return []


def remove_table(path: TablePath) -> None:
    """All that is there."""
    if isinstance(path, ObjectPath):
        path.remove_all()
    else:
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def store_settings() -> dict[str, str]:
    """What the environment says of stores: tasks get it with their split, if their own says nothing."""
    return {name: value for name, value in os.environ.items() if name.startswith(OF_STORES)}


HANDED = "FOREBAY_STORES"


def settings_for_tasks() -> dict[str, str]:
    """In the process that plans, whose environment is from when Spark began: what the driver's was when the read did."""
    handed = os.environ.get(HANDED)
    return store_settings() if handed is None else dict(json.loads(handed))


_taken: dict[str, str] = {}  # what the environment of this process has from the driver


def take_settings(given: Mapping[str, str]) -> None:
    """In a task: what the driver knows of stores. What a worker's own environment says comes first.

    Workers outlive credentials: what the driver said before gives way to what it says now.
    """
    for name in set(_taken) - set(given):
        if os.environ.get(name) == _taken.pop(name):
            del os.environ[name]
    for name, value in given.items():
        if os.environ.get(name) == _taken.get(name):
            os.environ[name] = _taken[name] = value


def parquet_file(path: TablePath) -> pq.ParquetFile:
    """A Parquet file to read. FileNotFoundError."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path.open_input() if isinstance(path, ObjectPath) else path)


def parquet_writer(path: TablePath, schema: pa.Schema, **how: Any) -> pq.ParquetWriter:
    """A Parquet file to write; closing it makes it whole."""
    import pyarrow.parquet as pq

    if not isinstance(path, ObjectPath):
        return pq.ParquetWriter(path, schema, **how)
    sink = path.open_output()
    writer = pq.ParquetWriter(sink, schema, **how)
    close = writer.close

    def close_both() -> None:
        close()
        if not sink.closed:
            sink.close()

    writer.close = close_both
    return writer


class _Reading(io.RawIOBase):
    """Bytes for pyarrow, which takes no other kind of buffer."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size)


class _Writing(io.RawIOBase):
    def __init__(self, path: ObjectPath, file: Any) -> None:
        self._path, self._file, self._at = path, file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self._send(lambda: self._file.write(taken))
        self._at += len(taken)
        return len(taken)

    def flush(self) -> None:
        """Only a whole object can be seen."""

    def close(self) -> None:
        if not self.closed:
            self._send(self._file.close)
        super().close()

    def _send(self, call: Callable[[], object]) -> None:
        from obstore.exceptions import BaseError

        try:
            call()
        except (BaseError, OSError) as error:
            raise refused(str(self._path), error) from None


@lru_cache(maxsize=64)
def _store(root: str, _settings: tuple[tuple[str, str], ...], _process: int) -> Any:
    """One a bucket, what the environment says of stores, and process: a client does not survive a fork."""
    from obstore.store import from_url

    pauses = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}
    retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=PATIENCE_S), "backoff": pauses}
    client: Any = {"timeout": timedelta(seconds=PATIENCE_S), "connect_timeout": timedelta(seconds=5)}
    if root.startswith(("s3", "gs", "az", "abf")) and os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true":
        client["allow_http"] = True
    return from_url(root, retry_config=retry, client_options=client)


def _stat(found: Mapping[str, Any]) -> ObjectStat:
    return ObjectStat(int(found["size"]), found["last_modified"].timestamp(), found.get("e_tag"))


def storage_away(table: TablePath, why: str | Exception) -> StorageError | None:
    """The failure of a table's storage that passes by itself; None where it is another failure. Text is what a task said."""
    if not isinstance(table, ObjectPath):
        return None
    if isinstance(why, str):
        known = from_text(why)
        return known if isinstance(known, StorageError) else None
    if isinstance(why, StorageError):
        return why
    if isinstance(why, ForebayError | FileExistsError | FileNotFoundError):
        return None
    kind = type(why).__module__.partition(".")[0]
    return refused(str(table), why) if kind == "deltalake" or isinstance(why, OSError) else None


CAUSES = (
    ("NoSuchBucket", "there is no such bucket", "create it, or correct the name"),
    ("SignatureDoesNotMatch", "the store does not know this key", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ("InvalidAccessKeyId", "the store does not know this key", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ("403 Forbidden", "the store does not allow it", "let this user list, read, write and delete objects there"),
    ("401 Unauthorized", "the store does not allow it", "set the credentials in the environment"),
    ("No space left", "the store is full", "make room; what was not written is written again"),
    ("507 ", "the store is full", "make room; what was not written is written again"),
    ("XMinioStorageFull", "the store is full", "make room; what was not written is written again"),
    ("dns error", "the store's host name is not known", "check AWS_ENDPOINT_URL and AWS_REGION"),
    ("error sending request", "the store cannot be reached", "check AWS_ENDPOINT_URL, and that it runs"),
    ("timed out", "the store does not answer", "it is asked again; check its load and the way there"),
)  # fmt: skip


def refused(place: str, error: Exception) -> StorageError:
    """In words: what a store has refused, without what was sent to it."""
    text = str(error)
    for sign, words, remedy in CAUSES:
        if sign.lower() in text.lower():
            return StorageError(f"{place}: {words}", remedy=remedy)
    return StorageError(
        f"{place}: {text.splitlines()[0][:300]}", remedy="it is tried again; look at the store's own log"
    )
