"""The blackboard's index against plain dicts: whatever is fed, however often it is cut off, both say the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from foreign_records import GOOD, KEYS, KINDS
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.blackboard import Artifact, FilterConfig
from forebay.blackboard.artifact import PlainCodec, decode, encode
from forebay.blackboard.board_topics import BoardTopics
from forebay.blackboard.index import Fed, Index
from forebay.blackboard.options import bind
from forebay.blackboard.queries import Queries
from forebay.blackboard.records import partition_key
from forebay.blackboard.stats import Refusals

TOPICS = BoardTopics.of(bind({"topic.prefix": "t."}))
IDS = {name: f"id-of-{name}" for name in TOPICS.indexed}
BASE = datetime(2026, 1, 1, tzinfo=UTC)
CODEC = PlainCodec()

payloads = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)  # fmt: skip
artifacts = st.builds(
    Artifact,
    type=st.sampled_from(["A", "B"]),
    payload=payloads,
    produced_by=st.sampled_from(["p", "q"]),
    id=st.integers(0, 5).map(lambda n: UUID(int=n)),
    correlation_id=st.none() | st.sampled_from(["c", "d"]),
    tags=st.frozensets(st.sampled_from(["x", "y", "z"])),
    visibility=st.sampled_from([{"kind": "Public"}, {"kind": "Private", "agents": ["p"]}]),
    created_at=st.integers(0, 3).map(lambda n: BASE + timedelta(milliseconds=500 * n)),
    version=st.integers(1, 3),
)
filters = st.builds(
    FilterConfig,
    type_names=st.none() | st.sets(st.sampled_from(["A", "B", "C"])),
    produced_by=st.none() | st.sets(st.sampled_from(["p", "q"])),
    correlation_id=st.none() | st.sampled_from(["c", "d"]),
    tags=st.none() | st.sets(st.sampled_from(["x", "y"])),
    visibility=st.none() | st.sets(st.sampled_from(["Public", "Private"])),
    start=st.none() | st.integers(0, 3).map(lambda n: BASE + timedelta(milliseconds=500 * n)),
    end=st.none() | st.integers(0, 3).map(lambda n: BASE + timedelta(milliseconds=500 * n)),
)


def fed(log: list[Artifact | UUID]) -> list[Fed]:
    """Records of by_id; a bare id is a tombstone."""
    return [
        Fed(
            TOPICS.by_id, 0, offset, 1_000,
            str(each.id if isinstance(each, Artifact) else each).encode(),
            encode(CODEC.document(each)) if isinstance(each, Artifact) else None,
        )
        for offset, each in enumerate(log)
    ]  # fmt: skip


def meant(each: Artifact, wanted: FilterConfig) -> bool:
    return (
        (not wanted.type_names or each.type in wanted.type_names)
        and (not wanted.produced_by or each.produced_by in wanted.produced_by)
        and (not wanted.correlation_id or each.correlation_id == wanted.correlation_id)
        and (not wanted.tags or wanted.tags <= each.tags)
        and (not wanted.visibility or each.visibility["kind"] in wanted.visibility)
        and (wanted.start is None or each.created_at >= wanted.start)
        and (wanted.end is None or each.created_at <= wanted.end)
    )


@given(artifacts)
def test_an_artifact_comes_back_as_it_went(one: Artifact) -> None:
    assert CODEC.artifact(decode(encode(CODEC.document(one)))) == one


@given(st.lists(artifacts | st.integers(0, 5).map(lambda n: UUID(int=n)), max_size=12), filters, st.integers(-1, 4), st.integers(0, 3))  # fmt: skip
def test_a_page_is_what_a_filter_means_in_the_order_of_creation_and_id(
    log: list[Artifact | UUID], wanted: FilterConfig, limit: int, offset: int
) -> None:
    newest: dict[UUID, Artifact] = {}
    for each in log:
        if isinstance(each, Artifact):
            newest[each.id] = each
        else:
            newest.pop(each, None)
    expected = sorted(
        (each for each in newest.values() if meant(each, wanted)), key=lambda a: (a.created_at, a.id)
    )
    index = Index(TOPICS)
    try:
        index.apply(fed(log), {(TOPICS.by_id, 0): len(log)}, IDS)
        page, total = Queries(index, CODEC, TOPICS.by_id).page(wanted, limit, offset)
        assert total == len(expected)
        shown = expected[offset : offset + limit] if limit > 0 else expected[offset:]
        assert [each.artifact for each in page] == shown
        summary = Queries(index, CODEC, TOPICS.by_id).summary(wanted)
        assert summary["total"] == len(expected)
        assert sum(summary["by_type"].values()) == len(expected)
        assert sum(summary["tag_counts"].values()) == sum(len(each.tags) for each in expected)
    finally:
        index.close()


@given(st.lists(artifacts, min_size=1, max_size=12), st.lists(st.integers(1, 5), min_size=1), st.data())
@settings(max_examples=50)
def test_an_index_that_is_closed_at_any_moment_goes_on_without_loss_or_repeat(
    log: list[Artifact], chunks: list[int], data: Any
) -> None:
    records = fed(list(log))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "board.db"
        index, at = Index(TOPICS, path), 0
        try:
            for size in [*chunks, len(records)]:
                index.apply(records[at : at + size], {(TOPICS.by_id, 0): min(len(records), at + size)}, IDS)
                if data.draw(st.booleans()):
                    index.close()
                    index = Index(TOPICS, path)
                at = index.positions(IDS)[TOPICS.by_id, 0]
                assert at <= len(records)
            newest = {str(each.id): encode(CODEC.document(each)) for each in log}
            assert {id: (index.document(id) or [None])[0] for id in newest} == newest
        finally:
            index.close()


def test_of_a_key_in_two_partitions_the_later_record_counts() -> None:
    index = Index(TOPICS)
    old, new = (Artifact("A", {"n": n}, "p", id=UUID(int=1), created_at=BASE) for n in (1, 2))
    values = [encode(CODEC.document(each)) for each in (old, new)]
    key = str(old.id).encode()
    index.apply([Fed(TOPICS.by_id, 1, 0, 2_000, key, values[1])], {(TOPICS.by_id, 1): 1}, IDS)
    index.apply([Fed(TOPICS.by_id, 0, 0, 1_000, key, values[0])], {(TOPICS.by_id, 0): 1}, IDS)
    assert json.loads((index.document(str(old.id)) or [b""])[0])["payload"] == {"n": 2}
    index.close()


@given(artifacts)
def test_what_has_one_key_goes_to_one_partition_whatever_else_it_holds(one: Artifact) -> None:
    document = CODEC.document(one)
    key = partition_key(document)
    assert key == partition_key({**document, "payload": {}, "tags": [], "version": 9})
    if one.correlation_id:
        assert key == one.correlation_id.encode()
    assert partition_key({**document, "partition_key": "mine"}) == b"mine"


_text = st.text(max_size=4) | st.sampled_from(["\ud800", "2026-01-01", str(UUID(int=3)), "web"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_whatever_is_written_to_a_topic_is_taken_or_refused_and_never_stops_the_index(data: Any) -> None:
    """Good records with some fields replaced by anything, and bytes that are anything."""
    kinds = [kind for kind in KINDS if kind != "artifacts"]
    index, offset = Index(TOPICS), 0
    try:
        for _ in range(5):
            kind = data.draw(st.sampled_from(kinds))
            topic = getattr(TOPICS, kind)
            changed = data.draw(st.dictionaries(st.sampled_from([*GOOD[kind], "x"]), _json, max_size=2))
            value = data.draw(
                st.just(json.dumps({**GOOD[kind], **changed}).encode()) | st.binary(max_size=20) | st.none()
            )
            key = data.draw(st.just(KEYS[kind]) | st.binary(max_size=6))
            index.apply([Fed(topic, 0, offset, 0, key, value)], {(topic, 0): offset + 1}, IDS)
            offset += 1
        refusals = Refusals()
        queries = Queries(index, CODEC, TOPICS.by_id, refusals)
        queries.recent(10), queries.page(None, 0, 0), queries.summary(None), queries.agents()
        queries.history("web", None), queries.consumptions([GOOD["by_id"]["id"]])
        assert refusals.total == 0  # what the index takes can be read
    finally:
        index.close()
