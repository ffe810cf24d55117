"""What retries, replays and agents' outputs are made of: nothing about a job is lost on its way through headers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.blackboard import Artifact, RetryPolicy
from forebay.blackboard.agents import AgentSubscription, output, output_id, types_of
from forebay.blackboard.artifact import PlainCodec
from forebay.blackboard.retries import Job, headers_of, job_of, letter_of, own
from forebay.deadletter.letter import REPLAY_ID, Letter
from forebay.errors import ArtifactError

names = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
places = st.tuples(st.text("abc./-", min_size=1, max_size=8), st.integers(0, 99), st.integers(0, 2**40))
others = st.lists(
    st.tuples(st.sampled_from(["ce_id", "ce_type", "x"]), st.none() | st.binary(max_size=5)), max_size=4
)
CODEC = PlainCodec()


@given(names, st.integers(0, 50), st.integers(0, 2**41), places, others)
def test_a_job_comes_out_of_its_headers_as_it_went_in(
    agent: str, failed: int, due_ms: int, origin: Any, before: Any
) -> None:
    job = Job(agent, failed, due_ms, "", origin)
    once = headers_of(job, before, "why")
    assert job_of(once, ("elsewhere", 1, 2)) == job
    again = job.next("other", due_ms + 1)
    twice = headers_of(again, once)
    assert job_of(twice, ("elsewhere", 1, 2)) == again
    assert own(twice) == before  # the record's own headers, however often it is put off


@given(places)
def test_a_record_without_such_headers_is_for_everybody_and_from_where_it_is(place: Any) -> None:
    assert job_of([("ce_id", b"1")], place) == Job(None, 0, 0, "", place)
    assert job_of([(REPLAY_ID, b"r")], place).replay == "r"
    with pytest.raises(ArtifactError, match="do not make sense"):
        job_of([("forebay.retry.attempt", b"two")], place)


@given(names, places, others, st.binary(max_size=20))
def test_a_dead_letter_is_the_record_addressed_to_its_agent(
    agent: str, place: Any, before: Any, value: bytes
) -> None:
    job = Job(None, 2, 0, "", place)
    letter = letter_of(job, agent, b"k", value, before, ValueError("no"), 5, 4)
    assert Letter.from_kafka(*letter.to_kafka()) == letter
    assert (letter.identity[:3], letter.kind, letter.message) == (place, "ValueError", "attempt 3: no")
    replayed = job_of(letter.headers, ("log", 0, 0))
    assert (replayed.agent, replayed.failed) == (agent, 0)


def test_waits_double_up_to_a_limit_and_there_is_always_a_topic_for_replays() -> None:
    policy = RetryPolicy(attempts=5, backoff_ms=100, backoff_max_ms=500)
    assert [policy.wait_ms(failed) for failed in range(1, 5)] == [100, 200, 400, 500]
    assert policy.topics == 4
    assert RetryPolicy(attempts=1).topics == 1


def test_the_same_cause_makes_the_same_outputs_and_a_replay_makes_others() -> None:
    cause = CODEC.document(Artifact("Order", {}, "shop", correlation_id="c"))
    made = CODEC.document(Artifact("Reply", {}, ""))
    first = output(made, cause, "web", 0, "")
    assert first == output({**made, "id": "another"}, cause, "web", 0, "")
    assert (first["correlation_id"], first["produced_by"]) == ("c", "web")
    ids = {output_id(cause["id"], agent, n, r) for agent in ("web", "app") for n in (0, 1) for r in ("", "r")}
    assert len(ids) == 8
    with pytest.raises(ArtifactError, match="no artifact"):
        output("text", cause, "web", 0, "")  # type: ignore[arg-type]


def test_an_agent_gets_the_types_it_wants_and_never_its_own() -> None:
    def wants(types: Any, made: Artifact) -> bool:
        return AgentSubscription("web", types_of(types), print).wants(CODEC.document(made))

    order = Artifact("Order", {"n": 3}, "shop")
    assert wants("Order", order)
    assert wants({"Order", "Reply"}, order)
    assert wants("*", order)
    assert not wants("Reply", order)
    assert not wants("*", Artifact("Order", {}, "web"))


def test_a_condition_says_which_of_them() -> None:
    who = AgentSubscription("web", types_of("*"), print, lambda given: given.payload["n"] == 3)
    assert who.passes(Artifact("Order", {"n": 3}, "shop"))
    assert not who.passes(Artifact("Order", {"n": 4}, "shop"))


@pytest.mark.parametrize("made", [None, [], Artifact("A", {}, "p"), (Artifact("A", {}, "p"),) * 2])
def test_a_handler_may_give_nothing_one_or_several_and_be_of_any_kind(made: Any) -> None:
    expected = [] if made is None else [made] if isinstance(made, Artifact) else list(made)

    async def slowly(given: Any) -> Any:
        await asyncio.sleep(0)
        return made

    async def work() -> None:
        with ThreadPoolExecutor(1) as threads:
            for handler in (slowly, lambda given: made, lambda given: slowly(given)):
                who = AgentSubscription("web", types_of("*"), handler)
                assert await who.handle(Artifact("Order", {}, "shop"), threads) == expected

    asyncio.run(work())
