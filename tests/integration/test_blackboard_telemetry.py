"""What a blackboard tells of itself: spans with their attributes, metrics for each agent and partition."""

from __future__ import annotations

from boards import artifact, board, run
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from support import Cluster, unique
from waiting import until

from forebay.blackboard import Artifact, Orchestrator, RetryPolicy


def test_spans_and_metrics_say_what_agents_do_and_where(
    cluster: Cluster, spans: InMemorySpanExporter
) -> None:
    def answer(given: Artifact) -> Artifact:
        if given.payload["n"]:
            raise ValueError("odd")
        return Artifact("Reply", {}, "answering")

    async def work() -> str:
        async with board(cluster, transactions=True, transactional_id=unique("node"), partitions=1) as store:
            retry = RetryPolicy(attempts=2, backoff_ms=1)
            team = Orchestrator(store, unique("agents"), retry=retry, commit_interval_ms=50, heavy_lag=10)
            team.subscribe("answering", "Order", answer)
            async with team:
                for n in range(2):
                    await store.publish(artifact(n, correlation_id="c"))
                await until(lambda: team.stats.total("answering").dead == 1, "one is handled, one is dead")
                registry = CollectorRegistry()
                registry.register(team.collector())

                def exposed() -> str:
                    text = generate_latest(registry).decode()
                    group = f'consumergroup="{team.group_id}",partition="0",topic="{store.topics.artifacts}"'
                    return text if f"kafka_consumergroup_lag{{{group}}} 0.0" in text else ""

                text = await until(exposed, "the lag is known")
            sent = {span.name: span for span in spans.get_finished_spans() if "send" in span.name}
            attributes = dict(sent[f"send {store.topics.artifacts}"].attributes or {})
            assert (
                attributes["kafka.topic"]
                == attributes["messaging.destination.name"]
                == store.topics.artifacts
            )
            assert (attributes["artifact.type"], attributes["correlation_id"]) == ("Order", "c")
            assert {"artifact.id", "partition", "offset", "messaging.kafka.offset"} <= attributes.keys()
            assert attributes["transaction_id"] == store.node
            published = {
                span.context.span_id for span in spans.get_finished_spans() if span.name.startswith("send")
            }
            ran = [span for span in spans.get_finished_spans() if span.name == "agent answering"]
            assert len(ran) == 3  # one of them twice
            assert all(link.context.span_id in published for span in ran for link in span.links)
            assert all(span.links for span in ran)
            failed = next(span for span in ran if not span.status.is_ok)
            assert dict(failed.attributes or {})["error.type"] == "ValueError"
            letter = sent[f"send {store.topics.dlq('answering')}"]
            assert letter.context.trace_id in {
                link.context.trace_id for span in ran if not span.status.is_ok for link in span.links
            }
            assert not failed.events  # an error's words may quote the artifact
            return text

    text = run(work())
    assert 'forebay_agent_artifacts_total{agent="answering",partition="0"} 1.0' in text
    assert 'forebay_agent_errors_total{agent="answering",partition="0"} 2.0' in text
    assert 'forebay_agent_retries_total{agent="answering",partition="0"} 1.0' in text
    assert "forebay_pool_heavy_partition{" in text
    assert 'forebay_agent_dead_letters_total{agent="answering",partition="0"} 1.0' in text
    assert "forebay_agent_seconds_total" in text
