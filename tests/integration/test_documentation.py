"""README and docs, typed as a reader types them: each page in an empty folder, and once more in the same one.

The first time each output must be the one that the page shows. The second time everything must run again, on the
topics, sources and views that the first time left; `make test-long` does that with every page, `make test` with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from documents import ROOT, blocks_of, pages
from guarded import PASSWORD, USER
from readers import WIDTH, Reader
from sessions import connect
from support import QUIET, Cluster, eventually

from forebay.devstack.broker import Broker
from forebay.devstack.guard import Guard, GuardedListener

SECURE = ROOT / "docs" / "how-to" / "secure-kafka.md"
# It starts and wipes a stack of its own; that what it allows is enough, test_missing_acls.py proves.
ACLS = ROOT / "docs" / "how-to" / "secure-brokers.md"
# Typed in a terminal by test_tutorial.py, with a stack of its own: it begins with starting one, and ends with removing it.
TUTORIAL = ROOT / "docs" / "tutorial.md"
TWICE = "FOREBAY_LONG" in os.environ
# It starts executors as processes of their own, which takes a minute. test_cluster.py has a cluster.
CLUSTERS = ROOT / "docs" / "cluster.md"
LEFT_OUT = {SECURE, ACLS, TUTORIAL} | (set() if TWICE else {CLUSTERS})
PAGES = [path for path in pages() if path not in LEFT_OUT and any(block.runs for block in blocks_of(path))]
AGAIN = ROOT / "docs" / "how-to" / "from-kafka-connect.md"
CHOSEN = (
    "KAFKA_BOOTSTRAP_SERVERS",
    "FOREBAY_KAFKA_CONFIG",
    "SCHEMA_REGISTRY_URL",
    "FOREBAY_HOME",
    "FOREBAY_PROFILE",
)


@dataclass(frozen=True)
class DocumentationStack:
    """What `forebay dev up` has started, and the environment in which commands find it."""

    environment: dict[str, str]
    bootstrap_servers: str
    schema_registry_url: str

    @property
    def places(self) -> dict[str, str]:
        """The addresses that pages name, and where they are here."""
        return {
            "localhost:9092": self.bootstrap_servers,
            "http://localhost:8081": self.schema_registry_url,
        }

    def wipe(self) -> None:
        """A page is read on a broker that knows nothing of the others."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=QUIET)

        def topics() -> list[str]:
            return [name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")]

        if found := topics():
            for future in admin.delete_topics(found).values():
                future.result(30)
            eventually(lambda: not topics(), "the topics are gone")
        groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
        for future in admin.delete_consumer_groups(groups).values() if groups else ():
            future.result(30)
        for subject in json.load(urllib.request.urlopen(f"{self.schema_registry_url}/subjects", timeout=10)):
            path = f"{self.schema_registry_url}/subjects/{subject}"
            for way in ("", "?permanent=true"):
                urllib.request.urlopen(urllib.request.Request(path + way, method="DELETE"), timeout=10)


def environment_of(state: Path) -> dict[str, str]:
    """Of a reader who has chosen nothing: `forebay` is on the path, and only the stack of that folder is known."""
    return {name: text for name, text in os.environ.items() if name not in CHOSEN} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FOREBAY_STATE": str(state),
        "FOREBAY_MASTER": "local[2]",
        "PYTHONPATH": "",
        "COLUMNS": str(WIDTH),
    }


@pytest.fixture(scope="module", autouse=True)
def spark(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One for all pages: programs and SQL of a page find it running."""
    connect(tmp_path_factory.mktemp("spark") / "home").close()


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentationStack]:
    environment = environment_of(tmp_path_factory.mktemp("stack"))

    def forebay(*arguments: str) -> str:
        command = [sys.executable, "-m", "forebay", "dev", *arguments]
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=120
        ).stdout

    try:
        up = json.loads(forebay("up", "-o", "json"))
        yield DocumentationStack(environment, up["bootstrap_servers"], up["schema_registry_url"])
    finally:
        forebay("down", "--wipe")


def read_twice(page: Path, folder: Path, environment: dict[str, str], places: dict[str, str]) -> None:
    for checked in (True, False) if TWICE or page == AGAIN else (True,):
        reader = Reader(folder, environment, places)
        try:
            for block in blocks_of(page):
                reader.read(block, checked=checked)
        finally:
            reader.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "reader"
    made.mkdir()
    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES])
def test_every_block_of_a_page_runs_in_an_empty_folder_and_runs_again(
    page: Path, documented: DocumentationStack, folder: Path
) -> None:
    documented.wipe()
    read_twice(page, folder, documented.environment, documented.places)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_page_about_acls_runs_on_a_stack_of_its_own(folder: Path, tmp_path: Path) -> None:
    reader = Reader(folder, environment_of(tmp_path / "state"), {})
    try:
        for block in blocks_of(ACLS):
            reader.read(block, checked=True)
    finally:
        reader.close()


@pytest.mark.timeout(600)
def test_the_page_about_a_secure_kafka_runs_on_one(folder: Path, tmp_path: Path) -> None:
    guard = Guard(tmp_path / "security", {"CLIENT": GuardedListener("SASL_SSL")}, users={USER: PASSWORD})
    broker = Broker(tmp_path / "data", guard=guard)
    broker.start()
    try:
        cluster = Cluster(broker, **guard.client(USER))
        cluster.make_topic(1, name="orders")
        cluster.produce("orders", ['{"id": 1, "amount": 12.5}'])
        places = {"kafka.example.com:9093": broker.bootstrap_servers, "/etc/kafka/ca.pem": str(guard.ca)}
        read_twice(SECURE, folder, environment_of(tmp_path / "state"), places)
    finally:
        broker.stop()
