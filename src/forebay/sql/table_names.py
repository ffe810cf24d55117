"""The tables a query reads, and their renaming."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from forebay.sql.rewrite import Edit
from forebay.sql.text import identifier


def tables(query: Any) -> tuple[str, ...]:
    """Names of all tables read, in order, each once; those of CTEs are none. A qualifier stays: `a.b`."""
    return tuple(dict.fromkeys(_full_name(table) for table in _references(query)))


def _references(query: Any) -> Iterator[Any]:
    found = [
        table
        for table in query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and _is_cte(table))
    ]
    return iter(sorted(found, key=lambda table: table.this.meta.get("start", 0)))


def _full_name(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


def _is_cte(table: Any) -> bool:
    """Whether a WITH in scope defines this name. A CTE sees those before it, not itself."""
    return resolve_cte(table) is not None


def resolve_cte(table: Any) -> Any:
    """The query of the CTE that this table names, or None."""
    name = table.name.lower()
    node = table
    while node.parent is not None:
        node = node.parent
        with_ = node.args.get("with_")
        if with_ is None:
            continue
        own = next((cte for cte in with_.expressions if any(up is cte for up in _ancestors(table))), None)
        visible = with_.expressions
        if own is not None:
            at = next(at for at, cte in enumerate(visible) if cte is own)
            visible = visible[: at + 1] if with_.args.get("recursive") else visible[:at]
        for cte in reversed(visible):
            if cte.alias.lower() == name:
                return cte.this
    return None


def _ancestors(node: Any) -> Iterator[Any]:
    while node is not None:
        yield node
        node = node.parent


def rename_edits(query: Any, mapping: Mapping[str, str]) -> list[Edit]:
    """Edits that make the query read `mapping[name]` for each name; references by the old name still hold."""
    names = {name.lower(): new for name, new in mapping.items()}
    edits: list[Edit] = []
    renamed: set[str] = set()
    for table in _references(query):
        full = _full_name(table)
        new = names.get(full.lower())
        if new is None or new == full:
            continue
        spans = [part.meta for part in table.parts]
        # After TABLESAMPLE or PIVOT an alias would have to stand behind them: only unqualified
        # references can be had there.
        behind = any(table.args.get(clause) for clause in ("sample", "pivots", "when", "version"))
        alias = "" if table.alias or behind else f" AS {identifier(table.name)}"
        start, end = min(meta["start"] for meta in spans), max(meta["end"] for meta in spans) + 1
        edits.append(Edit(start, end, identifier(new) + alias))
        renamed.add(full.lower())
    return edits + _unqualify(query, renamed)


def _unqualify(query: Any, renamed: set[str]) -> list[Edit]:
    """`db.table.column` becomes `table.column`: the alias has no qualifier."""
    edits = []
    for column in query.find_all(exp.Column):
        if column.db and f"{column.db}.{column.table}".lower() in renamed:
            first = column.args["db"].meta["start"]
            edits.append(Edit(first, column.args["table"].meta["start"], ""))
    return edits
