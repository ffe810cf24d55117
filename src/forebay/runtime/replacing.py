"""CREATE OR REPLACE SOURCE of a source that views read: what differs, and whether the views can go on over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forebay import sql

# Where and what a source reads, and what its rows are: the checkpoints and tables of its views are of these.
_FIXED_OPTIONS = frozenset(
    {
        "topic", "topics", "topic.pattern", "topic.prefix", "group.id", "group.mode", "format", "key.format", "key.columns",
        "startup.mode", "startup.timestamp.ms", "startup.specific.offsets", "auto.offset.reset", "schema.evolution",
        "event.time.column",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """`text` is for people. What is not `compatible` needs the views to be made anew."""

    text: str
    compatible: bool


def differences(
    old: sql.CreateSource, new: sql.CreateSource, shown: Callable[[str, str], str]
) -> list[Difference]:
    """What the new statement changes. `shown(key, text)` hides secrets."""
    found = [
        *_columns(old, new),
        *_options(old, new, shown),
    ]
    if old.connector != new.connector:
        found.append(Difference(f"connector: {old.connector} → {new.connector}", False))
    if old.watermark != new.watermark:
        before, after = (mark.shown if mark else "none" for mark in (old.watermark, new.watermark))
        found.append(Difference(f"watermark: {before} → {after}", False))
    if old.on_error != new.on_error:
        before, after = (each.strategy if each else "skip" for each in (old.on_error, new.on_error))
        found.append(Difference(f"ON ERROR: {before} → {after}", True))
    return found


def _columns(old: sql.CreateSource, new: sql.CreateSource) -> Iterator[Difference]:
    before, after = ({column.name: column for column in each.columns} for each in (old, new))
    for name in before.keys() - after.keys():
        yield Difference(f"column {name} is left out", False)
    for name, column in after.items():
        if name not in before:
            # A column that views know nothing of; old records have NULL in it.
            suffix = "" if column.nullable else " NOT NULL"
            yield Difference(f"column {name} {sql.type_name(column.type)}{suffix} is new", column.nullable)
        elif before[name] != column:
            known = before[name]
            texts = [
                f"{sql.type_name(each.type)}{'' if each.nullable else ' NOT NULL'}"
                for each in (known, column)
            ]
            yield Difference(f"column {name}: {texts[0]} → {texts[1]}", False)
    kept = [name for name in after if name in before]
    if kept != [name for name in before if name in after] or list(after)[: len(kept)] != kept:
        yield Difference("the columns are in another order", False)


def _options(
    old: sql.CreateSource, new: sql.CreateSource, shown: Callable[[str, str], str]
) -> Iterator[Difference]:
    for key in dict.fromkeys((*old.options, *new.options)):
        before, after = old.options.get(key), new.options.get(key)
        if (before.text if before else None) == (after.text if after else None):
            continue
        texts = [shown(key, each.text) if each else "default" for each in (before, after)]
        fixed = key in _FIXED_OPTIONS or key.startswith(("include.", "csv.", "avro.", "protobuf.", "key."))
        yield Difference(f"'{key}': {texts[0]} → {texts[1]}", not fixed)
