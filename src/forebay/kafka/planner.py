"""How far a Kafka source is read next: looked for until there is something, and checked before it is planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from forebay.backoff import Backoff
from forebay.connectors.alignment import HeldBack
from forebay.errors import OffsetOutOfRangeError, TopicRecreatedError, UnknownTopicError, UnreachableError
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.alignment import Aligner
from forebay.kafka.membership import Membership
from forebay.kafka.offsets import KafkaPosition, Range, Span
from forebay.kafka.partitions import TopicPartition
from forebay.kafka.silence import SilenceClock
from forebay.options import Options

# How long to wait before looking again: the longer there was nothing, the longer, as long as that adds little to it.
STEP_S, LONGEST_STEP_S, STEP_SHARE = 0.02, 0.4, 0.02
SLOW_LOOK_S = 1.0  # brokers that take so long to answer were away: producers could not reach them either
SHARED_STEP_S = 0.05  # the most where the group is shared: a partition that is revoked waits for this process


class Planner:
    """Of one source, in the process that plans. `topics` are those that there are now, as far as is known."""

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        topics: Callable[[], Mapping[str, Topic]],
        unreachable: Callable[[UnreachableError, float], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._topics = topics
        self._unreachable = unreachable
        self.membership: Membership | None = None  # of a group that is shared: says what may be planned here
        self.end: KafkaPosition | None = None  # where the source ended when it was last looked at
        self.silence = SilenceClock()
        self.aligner = Aligner()  # where partitions are to stay together in event time
        self._away = Backoff()
        self._quiet_since: float | None = None
        self._look_at = 0.0  # while it is quiet: when to look again, also by the next call

    def next(
        self, position: KafkaPosition, max_records: int | None, bound: KafkaPosition | None
    ) -> KafkaPosition:
        """Looks until there is something, for `poll.timeout.ms` or up to the next look; `position` where there is nothing."""
        deadline = time.monotonic() + self._options["poll.timeout.ms"] / 1000
        if self.membership is None:
            # To be asked again before the next look is due costs more than the look.
            deadline = max(deadline, self._look_at)
        while True:
            if self.membership is not None and self.membership.look():
                self._look_at = 0.0
            if time.monotonic() >= max(self._away.until, self._look_at):
                try:
                    end = self._advance(position, max_records, bound)
                except UnreachableError as error:
                    self.silence.stand_still()
                    self._unreachable(error, self._away.failed())
                else:
                    self._away.over()
                    if end is not None:
                        self._quiet_since, self._look_at = None, 0.0
                        return end
            now = time.monotonic()
            if self._quiet_since is None:
                self._quiet_since = now
            if now >= self._look_at:
                self._look_at = now + min(LONGEST_STEP_S, max(STEP_S, STEP_SHARE * self.quiet_s))
            if now >= deadline:
                return position
            step = min(self._look_at, deadline) - now
            time.sleep(max(0.0, step if self.membership is None else min(step, SHARED_STEP_S)))

    @property
    def quiet_s(self) -> float:
        """How long there has been nothing new."""
        return 0.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def _advance(
        self, position: KafkaPosition, max_records: int | None, bound: KafkaPosition | None
    ) -> KafkaPosition | None:
        """The next position to read to; None while there is nothing new."""
        asked = time.monotonic()
        topics = self._topics()
        check_identity(position, topics)
        known = [key for key in position.next if key[0] in topics]
        new = [key for key in partitions_of(topics) if key not in position.next]
        elsewhere: dict[TopicPartition, Span] = {}
        if self.membership is not None:
            ours = self.membership.assignment.partitions
            known, new = [key for key in known if key in ours], [key for key in new if key in ours]
            jumps = self.membership.assignment.elsewhere(position)
            elsewhere = {key: jumps[key] for key in (*known, *new) if key in jumps}
        ends = self._cluster.latest([*known, *new])
        ids = ids_of(topics)
        self.end = KafkaPosition(ends, ids)
        now = time.monotonic()
        if now - asked > SLOW_LOOK_S:
            self.silence.stand_still()
        self.silence.look(position.next, ends, now)
        if bound is not None:
            new = [key for key in new if key in bound.next]
            ends = {
                key: min(ends[key], max(bound.next.get(key, 0), position.next.get(key, 0))) for key in ends
            }
        stands = {key: position.next[key] for key in known} | {key: at for key, (_, at) in elsewhere.items()}
        if not new and not elsewhere and all(ends[key] == position.next[key] for key in known):
            self.aligner.held = HeldBack()
            return None
        lows = self._cluster.earliest([*known, *new])
        if self.membership is not None:
            stands |= {key: self.membership.assignment.partitions[key] for key in new}
        first = {key: lows[key] for key in new if key not in stands}
        for key, at in stands.items():
            self._check_still_there(key, at, lows[key], ends[key], first)
        begins = {key: max(stands.get(key, 0), first.get(key, 0)) for key in [*known, *new]}
        available = [Range(*key, begins[key], ends[key]) for key in sorted(begins) if ends[key] > begins[key]]
        divided = self.aligner.divide(available, max_records, position.next, self.silence.silence())
        reach = {(r.topic, r.partition): r.end for r in divided}
        following = dict(position.next) | begins | reach
        if following == position.next and not elsewhere:
            return None  # whoever is ahead waits for partitions that have nothing new
        number = None if self.membership is None else self.membership.assignment.number
        return KafkaPosition(following, ids, first, elsewhere, number)

    def _check_still_there(
        self, key: TopicPartition, at: int, low: int, end: int, first: dict[TopicPartition, int]
    ) -> None:
        if at < low:
            lost = Range(*key, at, low)
            if self._options["fail.on.data.loss"]:
                raise OffsetOutOfRangeError(f"{len(lost)} records are gone before they were read: {lost}")
            first[key] = low
        elif at > end:
            raise OffsetOutOfRangeError(
                f"{key[0]}-{key[1]} ends at {end}, but it was read up to {at}: {Range(*key, end, at)} is gone "
                "from the log (truncated, or replaced by another log)"
            )


def check_identity(position: KafkaPosition, topics: Mapping[str, Topic]) -> None:
    """Raises where a topic is gone, or is another one of its name."""
    for name, old in position.ids.items():
        read = ", ".join(
            f"{name}-{number} [0, {offset})" for (topic, number), offset in sorted(position.next.items())
            if topic == name
        )  # fmt: skip
        if name not in topics:
            raise UnknownTopicError(f"topic '{name}' is gone; of it {read} was read or planned")
        if old and topics[name].id != old:
            raise TopicRecreatedError(
                f"topic '{name}' was deleted and created again (id {old} is now {topics[name].id}); "
                f"read or planned of the old one: {read}"
            )
        if any(number >= topics[name].partitions for topic, number in position.next if topic == name):
            raise TopicRecreatedError(
                f"topic '{name}' has fewer partitions than were read or planned: {read}"
            )


def ids_of(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {topic.name: topic.id for topic in topics.values()}
