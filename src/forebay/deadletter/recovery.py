"""Recovery: letters for records that the rate limit kept out, read again where the topic still has them.

The ledger has stretches of the log, each with how many of its bad records have no letter. A stretch is read and
decoded again; what does not decode and has no letter gets one. Letters are counted once by identity, so a
recovery that is killed half-way is run again and nothing is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from forebay.connectors.contract import SourceConfig, Stretch
from forebay.deadletter.destinations import Destination
from forebay.deadletter.letterbox import Progress, read_records, silent
from forebay.deadletter.outcomes import mark_of
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.router import letter
from forebay.deadletter.seen import Seen
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.kafka.rows import RowDecoder
from forebay.options import Options
from forebay.tables import counted


@dataclass(repr=False)
class RecoveryReport:
    """What came back of what the rate limit kept out; `DeadLetters.recover()` gives it."""

    source: str
    dry_run: bool = False
    kept_out: int = 0  # as the ledger has it
    recovered: int = 0  # letters written; in a dry run, those that would be
    gone: int = 0  # the topic has lost them
    changed: int = 0  # they are not bad any more: the source takes them now, or compaction took them away
    ranges: list[str] = field(default_factory=list)  # of those that are gone or changed

    def __repr__(self) -> str:
        verb = "would be written" if self.dry_run else "written"
        more = "".join(
            f", {count:,} {what}"
            for what, count in (("gone", self.gone), ("not bad any more", self.changed))
            if count
        )
        where = f": {', '.join(self.ranges)}" if self.ranges else ""
        return (
            f"<recovery of {self.source}: {counted(self.recovered, 'letter')} of {self.kept_out:,} kept out "
            f"{verb}{more}{where}>"
        )


class Recovery:
    """Of one source. `known` are the identities that have a letter."""

    def __init__(
        self,
        config: SourceConfig,
        options: Options,
        policy: ErrorPolicy,
        known: Seen,
        destination: Callable[[], Destination],
    ) -> None:
        self._source = config.name
        self._options = options
        self._policy = policy
        self._rows = RowDecoder(config.schema, options)
        self._known = known
        self._make = destination

    def run(
        self,
        stretches: Sequence[Stretch],
        settle: Callable[[Stretch], None],
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> RecoveryReport:
        """`settle` hears of each stretch whose letters are durable."""
        report = RecoveryReport(self._source, dry_run, kept_out=sum(stretch.bad for stretch in stretches))
        topics, starts = self._known_now(stretches)
        total, done = sum(stretch.end - stretch.start for stretch in stretches), 0
        for stretch in stretches:
            first = max(stretch.start, starts[stretch.topic, stretch.partition])
            id = topics[stretch.topic]
            if stretch.topic_id not in ("", id):
                first = stretch.end  # of the topic that it was in, nothing is left
            destination = self._make()
            found = 0
            part = Range(stretch.topic, stretch.partition, min(first, stretch.end), stretch.end)
            for messages in read_records([part], self._options):
                found += self._write(messages, id, destination, dry_run)
                progress(min(total, done + messages[-1].offset() - stretch.start), total)
            if not dry_run:
                destination.flush()
                settle(stretch)
            done += stretch.end - stretch.start
            self._account(report, stretch, found, lost=first > stretch.start)
        return report

    def _known_now(self, stretches: Sequence[Stretch]) -> tuple[dict[str, str], dict[tuple[str, int], int]]:
        """The ids of the topics, and where their partitions begin. One that a new topic does not have is empty."""
        cluster = Cluster(self._options)
        try:
            topics = cluster.describe({stretch.topic for stretch in stretches})
            wanted = {(stretch.topic, stretch.partition) for stretch in stretches}
            there = [key for key in wanted if key[1] < topics[key[0]].partitions]
            starts = dict.fromkeys(wanted, 0) | cluster.earliest(there)
            return {topic.name: topic.id for topic in topics.values()}, starts
        finally:
            cluster.close()

    def _write(
        self, messages: Sequence[Message], topic_id: str, destination: Destination, dry_run: bool
    ) -> int:
        now, written = int(time.time() * 1000), 0
        for batch in self._rows.decode(messages, whole=True):
            for bad in batch.rejected:
                made = letter(self._source, bad, self._policy, now, topic_id)
                if not self._known.add(made.identity, mark_of(made)):
                    continue
                written += 1
                if not dry_run:
                    destination.write(made)
        return written

    def _account(self, report: RecoveryReport, stretch: Stretch, found: int, *, lost: bool) -> None:
        report.recovered += found
        missing = max(0, stretch.bad - found)
        if not missing:
            return
        if lost:
            report.gone += missing
        else:
            report.changed += missing
        report.ranges.append(str(Range(stretch.topic, stretch.partition, stretch.start, stretch.end)))
