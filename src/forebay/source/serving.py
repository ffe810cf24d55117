"""One read for many views: who is served in a micro-batch, and what each of its tasks gets to know.

The driver keeps who takes part in a file (`ReadState`), which the process that plans looks at before each batch. A task
gets all that it needs with its split (`Serving`): it reads and writes nothing of the session's home.

A view takes part from where it stands. One that is behind the shared read gets what it has missed in splits of its own,
in the batch in which it joins; one that is ahead joins when the read has come to where it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.connectors.contract import Offsets, SourceConnector, Split
from forebay.errors import CheckpointError
from forebay.files import write_whole
from forebay.object_path import is_url, settings_for_tasks
from forebay.source.watermarks import Marks

if TYPE_CHECKING:  # the processes that plan have no use for it
    from forebay.source.key_marks import KeyJudge


@dataclass(frozen=True)
class ServedView:
    """What a task does for a view, and where it puts the files."""

    name: str
    program: str  # as JSON
    table: str
    late: str = ""  # what becomes of late rows, as JSON
    closes: bool = False  # it gives windows out when they close: a watermark that moves is news for it


@dataclass(frozen=True)
class Participant:
    """A view of a shared read. `position` is where it stands; None: where the read stands. Only the ready are served."""

    view: ServedView
    position: Offsets | None = None
    ready: bool = True


@dataclass(frozen=True)
class ReadState:
    """Of a shared read, as the driver has it."""

    views: Mapping[str, Participant] = field(default_factory=dict)

    def with_view(self, participant: Participant) -> ReadState:
        return replace(self, views={**self.views, participant.view.name: participant})

    def without(self, name: str) -> ReadState:
        return replace(self, views={key: value for key, value in self.views.items() if key != name})

    def write(self, path: Path) -> None:
        # With `asdict`, fifty views that come one by one would take a second.
        form = {"views": [{**vars(each), "view": vars(each.view)} for each in self.views.values()]}
        write_whole(path, json.dumps(form).encode())

    @staticmethod
    def read(path: Path) -> ReadState:
        try:
            form = json.loads(path.read_bytes())
            found = [
                Participant(ServedView(**each["view"]), each["position"], each["ready"])
                for each in form["views"]
            ]
        except FileNotFoundError:
            return ReadState()
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{path}, which says where views stand, is damaged",
                remedy="restore this file from a backup; without one, drop the views of this source and create them "
                "again. Nothing was changed",
            ) from None
        return ReadState({each.view.name: each for each in found})


@dataclass(frozen=True)
class Serving:
    """What a task of a shared read is given, besides its split and how to treat bad records."""

    views: tuple[ServedView, ...] = ()
    catching_up: bool = False  # the split is read for these views alone, which have missed it
    header: str | None = None  # what the batch is: one task of it hands this on to the driver
    keyed: KeyJudge | None = None  # where keys have watermarks of their own
    marks: Marks = field(default_factory=Marks)  # by which it is judged what is late
    stores: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # how object stores are reached; with credentials


@dataclass(frozen=True)
class BatchHeader:
    """What a batch reads, and who is served from where on."""

    start: Offsets
    end: Offsets
    served: Mapping[str, Offsets]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> BatchHeader:
        return BatchHeader(**json.loads(text))


def joining(connector: SourceConnector, state: ReadState, start: Offsets) -> bool:
    """Whether a view waits to join that can join at `start`: that makes a batch, also where there is nothing new to read."""
    return any(
        each.position is not None and each.ready and connector.reached(start, each.position)
        for each in state.views.values()
    )


def closing(state: ReadState) -> bool:
    """Whether a view waits for windows to close."""
    return any(each.ready and each.view.closes for each in state.views.values())


def servings(
    connector: SourceConnector, state: ReadState, start: Offsets, end: Offsets, parallelism: int
) -> list[tuple[Split | None, Serving]]:
    """The tasks of a batch. At least one: it tells the driver what the batch was."""
    served = {
        name: each
        for name, each in state.views.items()
        if each.ready and (each.position is None or connector.reached(start, each.position))
    }
    header = BatchHeader(start, end, {name: each.position or start for name, each in served.items()})
    work: list[tuple[Split | None, Serving]] = []
    if served:
        everybody = Serving(tuple(each.view for each in served.values()), marks=Marks.at(end))
        work += [(split, everybody) for split in connector.plan_batches(start, end, parallelism)]
    for each in served.values():
        if each.position is not None:
            # What it has missed was not late where it stood.
            alone = Serving((each.view,), catching_up=True, marks=Marks.at(each.position))
            work += [(split, alone) for split in connector.plan_batches(each.position, start, parallelism)]
    if any(is_url(each.view.table) for each in served.values()):
        stores = settings_for_tasks()
        work = [(split, replace(serving, stores=stores)) for split, serving in work]
    (split, first), *rest = work or [(None, Serving())]
    return [(split, replace(first, header=header.to_json())), *rest]
