"""Options of a Kafka source that say when and how much it reads: event time, backpressure, the group."""

from __future__ import annotations

from forebay.options import Option, choice, fraction, integer, size

WATERMARKS = (
    Option("watermark.max.out.of.orderness.ms", integer(0), "how late a record may be", "5000", "3000"),
    Option(
        "watermark.idle.timeout.ms",
        integer(1),
        "after this silence a partition that is read to its end no longer holds the watermark back",
        "30000",
        "60000",
    ),
    Option(
        "watermark.alignment.max.drift.ms",
        integer(0),
        "no partition is read further ahead of the slowest active one in event time than this; without it none waits",
        example="60000",
    ),
    Option(
        "watermark.max.future.ms",
        integer(0),
        "how far ahead of the clock event time may be: a record beyond is refused as FutureTimestamp, and goes where "
        "ON ERROR says; 0: any is taken",
        "86400000",
        "3600000",
    ),
)

BACKPRESSURE = (
    Option(
        "batch.target.ms",
        integer(1),
        "how long a micro-batch should take: batches of a source that is behind grow and shrink towards it",
        "5000",
        "2000",
    ),
    Option(
        "max.delay.ms",
        integer(0, 600_000),
        "how long records may wait for a fuller batch; 0 reads them as soon as they are there",
        "0",
        "500",
    ),
    Option(
        "min.records.per.batch",
        integer(1),
        "with `max.delay.ms`: so many records do not wait any longer; unless given, as many as the batch may have",
        example="10000",
    ),
    Option(
        "backpressure.budget.bytes",
        size("1KB", "1024GB"),
        "the most bytes in flight, over all views: planned to be read, and not in their tables yet",
        "1GB",
        "256MB",
    ),
    Option(
        "backpressure.budget.records",
        integer(1),
        "the most records in flight, over all views",
        "8000000",
        "1000000",
    ),
    Option(
        "backpressure.high.watermark",
        fraction(),
        "the share of the budget in flight at which nothing more is fetched",
        "0.8",
        "0.9",
    ),
    Option(
        "backpressure.low.watermark",
        fraction(),
        "the share below which fetching goes on",
        "0.5",
        "0.6",
    ),
)

GROUP = (
    Option(
        "group.mode",
        choice("exclusive", "shared"),
        "exclusive: this source reads all partitions, and nobody else is in its group; shared: the group divides the "
        "partitions between the processes that read with its group.id, each with a home of its own",
        "exclusive",
        "shared",
    ),
    Option(
        "partition.assignment.strategy",
        choice("range", "roundrobin", "cooperative-sticky"),
        "how the group divides the partitions between its members; the same in each of them",
        "cooperative-sticky",
        "range",
    ),
)

HEALTH = (
    Option(
        "stall.timeout.ms",
        integer(1),
        "a view is stalled if there is something to read and no batch has ended for so long",
        "60000",
        "300000",
    ),
)
