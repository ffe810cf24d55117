"""Serves folders of the driver's to the executors of a cluster, in the protocol WebHDFS, whose client every Spark has.

What Spark keeps for a view with a query of its own (groups, windows, joins) is written by its tasks, into the checkpoint. On
other machines that folder is not there. So tasks write it over HTTP, to the process that has the folder. Nobody is let in
who does not send a header of a name that only this Spark knows. Only folders that were asked for are served.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from forebay.errors import OptionValueError
from forebay.threads import keep_running

log = logging.getLogger("forebay.state")

PREFIX = "/webhdfs/v1"
CHUNK = 1 << 20
EXCEPTIONS = {  # what the client makes of them is what tasks of Spark expect
    FileNotFoundError: (HTTPStatus.NOT_FOUND, "java.io.FileNotFoundException"),
    FileExistsError: (HTTPStatus.FORBIDDEN, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    PermissionError: (HTTPStatus.FORBIDDEN, "org.apache.hadoop.security.AccessControlException"),
    NotImplementedError: (HTTPStatus.BAD_REQUEST, "java.lang.UnsupportedOperationException"),
}


class StateServer:
    """Serves until it is closed. `host` is how executors reach this machine; `bind` where it listens; port 0: a free one."""

    def __init__(self, host: str, bind: str, port: int = 0) -> None:
        self._header = f"X-Forebay-{secrets.token_hex(16)}"
        self._folders: set[Path] = set()
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        server = type("_StateHttpServer", (_StateHttpServer,), {"address_family": family})
        try:
            self._server: _StateHttpServer = server((bind, port), _StateHandler)
        except OSError as error:
            raise OptionValueError(
                f"checkpoints cannot be served to the cluster on port {port} of {bind}: {error.strerror or error}",
                option="spark.forebay.state.port",
                remedy="name another port; 0 is one that is free",
            ) from None
        self._server.header, self._server.folders = self._header, self._folders
        self._address = f"{f'[{host}]' if ':' in host else host}:{self._server.server_port}"
        self._closed = threading.Event()
        self._thread = keep_running("forebay-state", lambda: self._server.serve_forever(0.1), self._closed)

    def settings(self) -> dict[str, str]:
        """Of a Spark session whose tasks are let in. The header is one that WebHDFS has against forged requests."""
        return {
            "dfs.webhdfs.rest-csrf.enabled": "true",
            "dfs.webhdfs.rest-csrf.custom-header": self._header,
            "dfs.webhdfs.rest-csrf.methods-to-ignore": "NONE",
        }

    def url(self, folder: Path) -> str:
        """What Spark calls a folder of this machine. It is served from now on."""
        self._folders.add(folder)
        return f"webhdfs://{self._address}{folder}"  # as it is: Spark takes a %20 for what it says

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _StateHttpServer(ThreadingHTTPServer):
    """A thread for each connection, which the client keeps for its next requests."""

    daemon_threads = True
    request_queue_size = 128
    header: str
    folders: set[Path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request of %s broke off", client_address, exc_info=True)  # a task that was killed


class _StateHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer leaves in one piece
    server: _StateHttpServer

    def log_message(self, *_: Any) -> None:
        """Each request in the log would say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        operation = query.get("op", "").upper()
        body = self._body()
        try:
            path = self._allowed(unquote(url.path.removeprefix(PREFIX)))
            known = getattr(self, f"_{self.command}_{operation}".lower(), None)
            if known is None:
                raise NotImplementedError(f"{self.command} {operation}")
            known(path, query, body)
        except Exception as error:
            for _ in body:  # what is left of it would be taken for the next request
                pass
            self._refuse(error)

    def _allowed(self, name: str) -> Path:
        if self.server.header not in self.headers:
            raise PermissionError("this is for the tasks of one Spark only")
        path = Path(os.path.normpath(name))
        if not any(path == folder or folder in path.parents for folder in self.server.folders):
            raise PermissionError(f"{path} is not served")
        return path

    # -- operations ----------------------------------------------------------------------------------

    def _get_getfilestatus(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        self._say({"FileStatus": _status(path, "")})

    def _get_liststatus(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        found = []
        for entry in sorted(path.iterdir()) if path.is_dir() else [path]:
            try:
                found.append(_status(entry, entry.name if entry != path else ""))
            except FileNotFoundError:  # renamed or removed meanwhile
                continue
        if not found and not path.exists():
            raise FileNotFoundError(str(path))
        self._say({"FileStatuses": {"FileStatus": found}})

    def _get_open(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = min(int(query.get("offset", 0)), size)
            left = min(int(query.get("length", size)), size - start)
            self._head(HTTPStatus.OK, left)
            file.seek(start)
            while left and (chunk := file.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
        self.wfile.flush()

    def _put_create(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        """Asked twice: the first time without the content, for where to send it. That is here."""
        if "forebay.data" not in query:
            host = self.headers.get("Host", "")
            location = f"http://{host}{self.path}&forebay.data=true"
            self._head(HTTPStatus.TEMPORARY_REDIRECT, 0, location=location)
            return
        if query.get("overwrite") == "false" and path.exists():
            raise FileExistsError(str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for chunk in body:
                file.write(chunk)
        self._head(HTTPStatus.CREATED, 0)

    def _put_mkdirs(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._say({"boolean": True})

    def _put_rename(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        """As on a local disk: a file that has the name is replaced."""
        into = self._allowed(query["destination"])
        try:
            path.replace(into)
        except OSError:
            self._say({"boolean": False})
        else:
            self._say({"boolean": True})

    def _put_setpermission(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        self._head(HTTPStatus.OK, 0)  # they are the driver's

    def _delete_delete(self, path: Path, query: dict[str, str], body: Iterator[bytes]) -> None:
        there = path.exists()
        if path.is_dir():
            if query.get("recursive") == "true":
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
        self._say({"boolean": there})

    # -- HTTP ----------------------------------------------------------------------------------------

    def _body(self) -> Iterator[bytes]:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            left = int(self.headers.get("Content-Length") or 0)
            while left and (part := self.rfile.read(min(CHUNK, left))):
                left -= len(part)
                yield part
            if left:
                raise ConnectionError("the request broke off")
            return
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            part = self.rfile.read(size)
            if len(part) < size or self.rfile.readline() != b"\r\n":
                raise ConnectionError("the request broke off")
            if not size:
                return
            yield part

    def _say(self, answer: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps(answer).encode()
        self._head(status, len(text))
        self.wfile.write(text)
        self.wfile.flush()

    def _head(self, status: HTTPStatus, length: int, location: str = "") -> None:
        """Without a Content-Type: to read one, the client needs classes that the Hadoop of PySpark does not have."""
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if not length:
            self.wfile.flush()

    def _refuse(self, error: Exception) -> None:
        kinds = (found for kind, found in EXCEPTIONS.items() if isinstance(error, kind))
        status, name = next(kinds, (HTTPStatus.INTERNAL_SERVER_ERROR, "java.io.IOException"))
        if status is HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("%s %s could not be answered: %s", self.command, self.path, error)
        said = {"exception": name.rpartition(".")[2], "javaClassName": name, "message": str(error)}
        self._say({"RemoteException": said}, status)


def _status(path: Path, name: str) -> dict[str, Any]:
    found = path.stat()
    is_folder = path.is_dir()
    return {
        "pathSuffix": name,
        "type": "DIRECTORY" if is_folder else "FILE",
        "length": 0 if is_folder else found.st_size,
        "modificationTime": int(found.st_mtime * 1000),
        "accessTime": int(found.st_atime * 1000),
        "blockSize": 0 if is_folder else 128 * 1024 * 1024,
        "replication": 0 if is_folder else 1,
        "permission": "700" if is_folder else "600",
        "owner": "forebay",
        "group": "forebay",
        "fileId": found.st_ino,
        "childrenNum": 0,
        "storagePolicy": 0,
    }
