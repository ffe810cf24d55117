"""Sources: checked when they are created, kept in the catalog, connected when they are used."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from forebay import sql
from forebay.catalog import Catalog, Definition
from forebay.column_types import DATE, TIMESTAMP, TIMESTAMP_NTZ
from forebay.connectors.contract import Discovered, Offsets, SourceConfig, SourceConnector
from forebay.connectors.registry import ConnectorRegistry
from forebay.deadletter.letter_topic import check_topic, ensure_topic
from forebay.deadletter.policy import ErrorPolicy, SourceFolder
from forebay.errors import (
    ObjectExistsError,
    OptionValueError,
    TopicRecreatedError,
    UnknownTopicError,
    UnsupportedSqlError,
)
from forebay.options import Options
from forebay.runtime.definitions import source_statement
from forebay.runtime.known import KnownSources, OnErrorFacts, SourceFacts
from forebay.runtime.late_tables import check_letters_wanted
from forebay.source.stream import EventTime

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(name: str) -> None:
    """Names become directories and temporary views: letters, digits and underscores only."""
    if not _NAME.fullmatch(name):
        raise UnsupportedSqlError(
            f"'{name}' cannot be a name", remedy="use letters, digits and underscores, a digit not first"
        )


class Sources(KnownSources):
    """The sources of a session. Secrets live here, in memory, and nowhere else."""

    def __init__(self, home: Path, catalog: Catalog, registry: ConnectorRegistry) -> None:
        super().__init__(home, catalog)
        self._registry = registry
        self._statements: dict[str, sql.CreateSource] = {}
        self._open: dict[str, SourceConnector] = {}
        self._evolving = threading.Lock()

    # -- creating ------------------------------------------------------------------------------------

    def create(self, statement: sql.CreateSource) -> tuple[bool, Discovered | None]:
        """Check everything, connect, keep. False if the very same source exists already.

        Where the statement has no columns, they are found now, kept, and returned.
        """
        check_name(statement.name)
        known = self._catalog.get(statement.name)
        given = self.masked(statement)
        if not statement.or_replace:
            statement = self._as_it_is_now(statement, known)
        masked = self.masked(statement)
        if known is not None and not statement.or_replace:
            same = known.kind == "source" and masked == known.sql
            if same and statement.name not in self._open:
                self._statements[statement.name] = statement  # with the secrets that the catalog has not
            if same or statement.if_not_exists:
                return False, None
            raise ObjectExistsError(
                f"a {known.kind} '{statement.name}' exists already, and is defined differently",
                remedy=f"DROP {known.kind.upper()} {statement.name}, or CREATE OR REPLACE SOURCE",
            )
        if known is not None and known.kind != "source":
            raise ObjectExistsError(f"'{statement.name}' is a {known.kind}", remedy="choose another name")
        connector = self._connector(statement)
        discovered = None if statement.columns else connector.discover_schema()
        if discovered is not None and not discovered.fixed:
            connector.close()
            columns = tuple(sql.Column(f.name, f.type, f.nullable) for f in discovered.columns)
            statement = replace(statement, columns=columns)
            connector = self._connector(statement)
        if pinned := connector.pinned():
            more = {key: sql.OptionValue(text) for key, text in pinned.items()}
            statement = replace(statement, options={**statement.options, **more})
            connector.redefine(self.config(statement))
        self.event_time(statement, connector)
        facts = self.facts_of(statement)
        policy = self._policy(facts.on_error)
        _check_destination(policy, connector)
        connector.open()
        _make_destination(policy, connector)
        self._forget(statement.name)
        self.folder(statement.name).write_policy(policy)
        self._statements[statement.name] = statement
        self._open[statement.name] = connector
        masked, now = self.masked(statement), int(time.time() * 1000)
        detail = {"given": given, "facts": facts.to_json(masked)}
        self._catalog.put(Definition(statement.name, "source", masked, now, detail))
        return True, discovered if discovered is not None and not discovered.fixed else None

    def is_same(self, statement: sql.CreateSource, known: Definition) -> bool:
        """Whether a source was created by this statement, whatever was found or has become of it since."""
        return self.masked(statement) in (
            known.sql, known.detail.get("given"), known.detail.get("created"),
        )  # fmt: skip

    def _as_it_is_now(self, statement: sql.CreateSource, known: Definition | None) -> sql.CreateSource:
        """A statement that was executed before means what has become of it: running a script again takes nothing back.

        Columns may have been found then or come since, and its error policy may have been altered.
        """
        if known is None or known.kind != "source" or not self.is_same(statement, known):
            return statement
        now = source_statement(known.sql)
        # Its own options come last: they have the secrets, which the catalog has not.
        options = {**now.options, **statement.options}
        return replace(statement, columns=now.columns, options=options, on_error=now.on_error)

    def evolve(self, name: str, schema_id: int) -> None:
        """Take the new fields of a schema in as columns. Nothing, where they are columns already."""
        with self._evolving:
            connector, statement = self.connector(name), self.statement(name)
            config = connector.evolved(schema_id)
            columns = tuple(sql.Column(f.name, f.type, f.nullable) for f in config.schema)
            options = {
                key: sql.OptionValue(config.options.get(key, value.text))
                for key, value in statement.options.items()
            }
            statement = replace(statement, columns=columns, options=options)
            self.event_time(statement, self._connector(statement))
            known = self._catalog.get(name)
            assert known is not None
            masked = self.masked(statement)
            detail = {**known.detail, "facts": self.facts_of(statement).to_json(masked)}
            self._catalog.put(replace(known, sql=masked, detail=detail))
            self._statements[name] = statement
            connector.redefine(self.config(statement))

    def masked(self, statement: sql.CreateSource) -> str:
        """The statement as it may be shown and kept: no secret in it."""
        table = self._registry.get(statement.connector).table
        plain = sql.CreateSource(
            statement.name, statement.columns, statement.watermark, statement.connector, statement.options,
            statement.on_error, spelling=statement.spelling,
        )  # fmt: skip
        return sql.to_sql(plain, mask=table.shown)

    def facts_of(self, statement: sql.CreateSource) -> SourceFacts:
        """What is kept beside the text, so that whoever only looks need not parse it."""
        table, clause = self._registry.get(statement.connector).table, statement.on_error
        given = None if clause is None else {key: value.text for key, value in clause.options.items()}
        return SourceFacts(
            statement.connector,
            {key: table.shown(key, text) for key, text in self.config(statement).options.items()},
            tuple(column.name for column in statement.columns),
            None if clause is None else OnErrorFacts(clause.strategy, given or {}),
        )

    def parsed_facts(self, text: str) -> SourceFacts:
        """Of a definition from before facts were kept."""
        return self.facts_of(source_statement(text))

    # -- the error policy ----------------------------------------------------------------------------

    def alter(self, statement: sql.AlterSource) -> str:
        """A new error policy: for the queries that run, here or elsewhere, from their next micro-batch on."""
        source = self.statement(statement.name)
        altered = replace(source, on_error=statement.on_error)
        facts = self.facts_of(altered)
        policy = self._policy(facts.on_error)
        # Whoever stops letters need not know the brokers' password.
        if policy.strategy != "dead_letter":
            check_letters_wanted(self._catalog, statement.name)
        if policy.strategy == "dead_letter":
            _check_destination(policy, self.peek(statement.name))
            _make_destination(policy, self.connector(statement.name))
        known = self._catalog.get(statement.name)
        assert known is not None
        masked = self.masked(altered)
        detail = {**known.detail, "facts": facts.to_json(masked)}
        if "created" not in detail:
            detail |= {"created": known.sql, "created_facts": known.detail.get("facts")}
        self._statements[statement.name] = altered
        self._catalog.put(replace(known, sql=masked, detail=detail))
        self.folder(statement.name).write_policy(policy)
        return f"source {statement.name} altered: ON ERROR = '{policy.strategy}' from the next micro-batch on"

    def folder(self, name: str) -> SourceFolder:
        return SourceFolder.of(self._home, name)

    def settle(self, name: str) -> None:
        """Before a query starts: its tasks must find the policy that the catalog has."""
        policy = self.policy(name)
        if not self.folder(name).policy.exists() or self.folder(name).read_policy() != policy:
            self.folder(name).write_policy(policy)

    def _connector(self, statement: sql.CreateSource) -> SourceConnector:
        return self._registry.make(self.config(statement))

    def config(self, statement: sql.CreateSource) -> SourceConfig:
        columns = pa.schema([pa.field(c.name, c.type, c.nullable) for c in statement.columns])
        given = {key: value.text for key, value in statement.options.items()}
        kind = self._registry.get(statement.connector)
        if statement.spelling == "from":
            # ON ERROR's short spelling names no group; WITH (…) requires one.
            given = kind.with_defaults(statement.name, given)
        mark = statement.watermark
        event_time = mark.column if mark else given.get("event.time.column")
        return SourceConfig(statement.name, statement.connector, given, columns, event_time)

    def event_time(self, statement: sql.CreateSource, connector: SourceConnector) -> EventTime | None:
        """The watermark of the source: the clause, or else the option."""
        column = (
            statement.watermark.column if statement.watermark else connector.options.get("event.time.column")
        )
        if column is None:
            return None
        delay = statement.watermark.delay_ms if statement.watermark else None
        if delay is None:
            delay = connector.options["watermark.max.out.of.orderness.ms"]
        fields = {field.name.lower(): field for field in connector.full_schema()}
        found = fields.get(column.lower())
        if found is None:
            raise OptionValueError(
                f"'event.time.column' names '{column}', which is not a column",
                option="event.time.column",
                remedy="there are: " + ", ".join(fields),
            )
        if found.type not in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
            raise UnsupportedSqlError(
                f"event time must be a TIMESTAMP, and '{column}' is {sql.type_name(found.type)}",
                remedy=f"declare it as: {column} TIMESTAMP (ISO 8601 text or epoch milliseconds are read as one)",
            )
        options = connector.options
        return EventTime(
            found.name,
            int(delay),
            options.get("watermark.idle.timeout.ms") or EventTime.idle_ms,
            options.get("watermark.alignment.max.drift.ms"),
            self._key(statement, fields),
        )

    def _key(self, statement: sql.CreateSource, fields: Mapping[str, pa.Field]) -> str | None:
        """The column of PER KEY."""
        key = statement.watermark.key if statement.watermark else None
        if key is None:
            return None
        found = fields[key.lower()]
        if pa.types.is_nested(found.type) or pa.types.is_floating(found.type):
            raise UnsupportedSqlError(
                f"WATERMARK … PER KEY {found.name}: a {sql.type_name(found.type)} tells no keys apart",
                remedy="name a column that is a text, a number without fractions, a date or a truth value",
            )
        return str(found.name)

    # -- using ---------------------------------------------------------------------------------------

    def statement(self, name: str) -> sql.CreateSource:
        """The statement of a source, with its secrets where this session knows them."""
        if name not in self._statements:
            self._statements[name] = source_statement(self._definition(name).sql)
        return self._statements[name]

    def connector(self, name: str) -> SourceConnector:
        """The source's connector, opened; the same one for all that this session does with it."""
        if name not in self._open:
            connector = self._connector(self.statement(name))
            connector.open()
            self._open[name] = connector
        return self._open[name]

    def beginning(self, name: str, known: Callable[[], Offsets | None]) -> tuple[Offsets, tuple[str, ...]]:
        """Where every view over a source begins unless it says otherwise, and what of it is gone by now.

        It is settled when the source is first read: by the group's offsets, `startup.mode` or `auto.offset.reset`. `known`
        says where views of a home began that was made before beginnings were kept.
        """
        connector = self.connector(name)
        identity = connector.identity()
        kept = self._catalog.beginning(name, identity) or known()
        if kept is not None:
            try:
                found = connector.still_there(kept)
            except (TopicRecreatedError, UnknownTopicError):
                pass  # a beginning in a topic that is no more
            else:
                self._catalog.set_beginning(name, identity, kept)
                return found
        offsets = connector.initial_offsets()
        self._catalog.set_beginning(name, identity, offsets)
        return offsets, ()

    def connected(self) -> dict[str, SourceConnector]:
        """Those that this session has connected, by name."""
        return dict(self._open)

    def peek(self, name: str) -> SourceConnector:
        """The connector without connecting: for what its options and columns say."""
        return self._open.get(name) or self._connector(self.statement(name))

    def options(self, name: str) -> Options:
        """With the secrets that this session knows."""
        return self.peek(name).options

    def _sources(self) -> Sources:
        return self

    def drop(self, name: str) -> None:
        if self.peek(name).group is None:
            self._catalog.forget_beginning(name)  # else the group's offsets would be taken for it
        self._catalog.drop(name)
        self._forget(name)
        shutil.rmtree(self.folder(name).root, ignore_errors=True)

    def _forget(self, name: str) -> None:
        self._statements.pop(name, None)
        connector = self._open.pop(name, None)
        if connector is not None:
            connector.close()

    def leave_groups(self) -> None:
        """Out of the groups that are shared with other processes: nothing is read here any more."""
        for connector in self._open.values():
            if connector.share is not None:
                connector.share.leave()

    def close(self) -> None:
        for name in list(self._open):
            self._open.pop(name).close()


def found_columns(discovered: Discovered) -> list[str]:
    """What was found, for people, in words that can be pasted into a statement."""
    columns = ", ".join(
        f"{field.name} {sql.type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"
        for field in discovered.columns
    )
    return [f"columns from {discovered.origin}: {columns}", *discovered.notes]


def _check_destination(policy: ErrorPolicy, connector: SourceConnector) -> None:
    if policy.topic is None:
        return
    if "bootstrap.servers" not in connector.options:
        raise OptionValueError(
            f"a {connector.config.connector} source has no brokers that could take dead letters",
            option="dead_letter_topic",
            remedy="write them to files: dead_letter_path = '…'",
        )
    check_topic(policy, connector.options)


def _make_destination(policy: ErrorPolicy, connector: SourceConnector) -> None:
    """So that the first bad record finds it, and a wrong one is found out while the statement is at hand."""
    if policy.topic is not None:
        ensure_topic(policy, connector.options, _partitions(connector))
    if policy.path is not None:
        try:
            Path(policy.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionValueError(
                f"'dead_letter_path' cannot be '{policy.path}': {error.strerror}", option="dead_letter_path"
            ) from None


def _partitions(connector: SourceConnector) -> int:
    """As many as the largest of the source's topics has."""
    topics = connector.end_offsets().get("topics", {}).values()
    return max((len(topic["partitions"]) for topic in topics), default=1)
