"""What the states of queries mean for whoever looks: which one a source is in, and what to do about a bad one."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.catalog import QueryState

WORST_FIRST = (
    QueryState.FAILED,
    QueryState.STALLED,
    QueryState.RETRYING,
    QueryState.BACKPRESSURED,
    QueryState.PAUSED,
    QueryState.STARTING,
    QueryState.RUNNING,
    QueryState.STOPPED,
    QueryState.CREATED,
)
BAD = (QueryState.FAILED, QueryState.STALLED, QueryState.RETRYING)
ALIVE = tuple(
    state for state in QueryState if state not in (QueryState.CREATED, QueryState.STOPPED, QueryState.FAILED)
)
"""States that end with the process that runs the query."""

_HINTS = {
    QueryState.PAUSED: "RESUME SOURCE … lets it go on",
    QueryState.BACKPRESSURED: "it goes on by itself once its tables have taken what was read; if that is slow, give Spark "
    "more cores, or look at DESCRIBE EXTENDED VIEW for what a batch waits for",
    QueryState.STALLED: "the message says what it waits for; if its batches take that long by nature, raise "
    "'stall.timeout.ms' or lower 'max.records.per.batch' of the source",
    QueryState.RETRYING: "nothing has to be done: it is started again after 0.1 to 30 s, and goes on where it stood; "
    "forebay_catalog.events has how often that happened",
    QueryState.FAILED: "remove the cause, then START VIEW …, which goes on where it stood: nothing is lost or repeated",
}


def hint_of(state: QueryState, *, view: str = "…", source: str = "…") -> str:
    """What to do; nothing where all is well."""
    text = _HINTS.get(state, "")
    return text.replace("SOURCE …", f"SOURCE {source}").replace("START VIEW …", f"START VIEW {view}")


def state_of_source(views: Iterable[QueryState]) -> QueryState:
    """The worst of its views; a source that nobody reads is created, and no more."""
    found = set(views)
    return next((state for state in WORST_FIRST if state in found), QueryState.CREATED)
