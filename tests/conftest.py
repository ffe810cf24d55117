"""For all tests: a shared machine stalls now and then, which is no fault of what is tested."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from forebay.devstack import DevStack

# `make chaos` asks for more examples of each property.
EXAMPLES = int(os.environ.get("FOREBAY_EXAMPLES", "30"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("forebay", deadline=None, suppress_health_check=SLOW, max_examples=EXAMPLES)
settings.load_profile("forebay")

# `make test-long` and `make chaos` run what `make test` has a short form of.
LONG = "FOREBAY_LONG" in os.environ

# What a shell starts in the background ignores Ctrl-C, and so do its children; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test's Spark or broker lives for seconds: a compiler that takes half a minute to pay only takes cores from others.
for name in ("SPARK_SUBMIT_OPTS", "KAFKA_OPTS"):
    os.environ.setdefault(name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Files that take most of a minute or more. They begin first, so that at the end no worker is left alone with one. The
# first ends a Spark in order, which leaves the archive of classes that the Sparks after it start from: one that is
# killed leaves none.
LONGEST = (
    "test_cli_run", "test_cli_run_script", "test_many_views", "test_old_homes", "test_beginnings", "test_shell_errors", "test_cli_topics",
    "test_documentation", "test_tutorial", "test_soak", "test_cluster", "test_devstack", "test_pool_trouble", "test_sigkill", "test_dead_letters", "test_schema_evolution",
    "test_session_flow", "test_flow", "test_views_changelog", "test_letters", "test_worker_memory", "test_session_metrics",
    "test_views_kinds", "test_web_api", "test_web_backend", "test_dlq_replay", "test_views_partial", "test_session_trouble", "test_session_health", "test_checkpoint_trouble", "test_links", "test_evolution_sigkill",
    "test_blackboard_agents", "test_answers_equal_spark", "test_pool_transactions", "test_kafka_outages", "test_cli_dlq",
    "test_strange_brokers", "test_sql_from_elsewhere", "test_project", "test_notebook", "test_unreachable_brokers",
    "test_remedies", "test_shared_groups", "test_recover",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not LONG:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    turns = {name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.path.stem, len(turns)))


@pytest.fixture(scope="session")
def broker() -> Iterator[DevStack]:
    """A running broker, one a worker process. Never kill it: there is `mortal_broker` for that."""
    from forebay.devstack import DevStack

    with DevStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def stack(broker: DevStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The worker's broker and a registry beside it. Whoever stops a registry has one of its own."""
    from support import registry_beside

    with registry_beside(broker, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="session")
def registry(stack: Any) -> Iterator[Any]:
    """The registry's own client, to write schemas with."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": stack.schema_registry_url}) as client:
        yield client
