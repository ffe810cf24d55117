"""Every error Forebay raises, in one tree.

    ForebayError                     FB0000
    ├── UnexpectedError              FB0001  nobody foresaw it: a fault of ours, or of a library
    ├── StatementError               FB1000  wrong SQL or wrong use; exit code 2
    │   ├── SqlSyntaxError           FB1001  the statement does not parse
    │   ├── UnsupportedSqlError      FB1002  it parses, but this cannot be done
    │   ├── UnknownObjectError       FB1101  no such source, view, …
    │   ├── ObjectExistsError        FB1102  that name is taken
    │   ├── ObjectInUseError         FB1103  something still reads from it
    │   └── OptionError              FB1200
    │       ├── UnknownOptionError   FB1201
    │       ├── OptionValueError     FB1202
    │       ├── MissingOptionError   FB1203
    │       ├── OptionConflictError  FB1204
    │       ├── DeniedOptionError    FB1205  a pass-through key that endangers
    │       └── SecretMissingError   FB1206  a secret that is not kept on disk
    ├── RecordError                  FB2000  one record could not be decoded
    │   ├── BadRecordError           FB2001  ... and ON ERROR = 'fail'
    │   ├── TooManyErrorsError       FB2002  a circuit breaker of ON ERROR
    │   └── MostRejectedError        FB2003  a run in which nothing, or too little, could be decoded
    ├── ConnectorError               FB3000
    │   ├── UnreachableError         FB3001  retryable; exit code 3
    │   ├── AuthError                FB3002  exit code 3
    │   │   └── MissingAclError      FB3020  logged in, but not allowed this: the kafka-acls line
    │   ├── UnknownTopicError        FB3003
    │   ├── OffsetOutOfRangeError    FB3004  records are gone: which ones
    │   ├── TopicRecreatedError      FB3005
    │   ├── CommitError              FB3006  retryable
    │   ├── ReadStalledError         FB3007  retryable
    │   ├── NoOffsetError            FB3008  auto.offset.reset = none, and no offset
    │   ├── ConnectorStateError      FB3009  a verb called out of order
    │   ├── NoColumnsError           FB3010  none declared, and none found
    │   ├── SchemaChangedError       FB3011  records have another schema than the source takes
    │   ├── NewFieldsError           FB3012  they have fields that are to become columns
    │   ├── DeadLetterError          FB3013  a dead letter cannot be written
    │   ├── WrongProtocolError       FB3014  who answers at the address speaks something else; exit code 3
    │   ├── GroupInUseError          FB3015  somebody else is a member of the source's group
    │   └── PartitionsLostError      FB3016  the group gave partitions of a batch to another process; retryable
    ├── RuntimeFailure               FB4000
    │   ├── QueryFailedError         FB4001
    │   ├── WaitTimeoutError         FB4002  exit code 4
    │   ├── AlreadyRunningError      FB4003
    │   ├── CheckpointError          FB4004
    │   ├── SessionClosedError       FB4005
    │   ├── WorkerLostError          FB4006  a Python worker of Spark's; retryable
    │   ├── ChangeLogError           FB4007  a row was taken back that was never there
    │   ├── SelectFailedError        FB4008  Spark could not work out a SELECT
    │   ├── EvaluationError          FB4009  an expression has no value for a row: overflow, division by zero
    │   ├── ReplayFailedError        FB4010  dead letters that could not be sent again
    │   ├── ChangesGoneError         FB4011  changes of a view that are not kept any more
    │   ├── SumOverflowError         FB4012  a sum of a group is beyond its type
    │   ├── SourcePausedError        FB4015  nothing is read of it until it is resumed
    │   ├── DiskFullError            FB4018  a disk that must be written to is full; retryable
    │   ├── PoolHaltedError          FB4020  more records of a pool have failed than it bears
    │   ├── HandlerTimeoutError      FB4021  a pool's handler took too long; retryable
    │   ├── TransactionError         FB4022  a pool's transaction cannot go on
    │   ├── PoolStateError           FB4023  a verb of a pool called out of order
    │   ├── OutputError              FB4024  what a handler of a pool has sent cannot be written
    │   ├── StorageError             FB4025  an object store does not do what it is asked for; retryable
    │   ├── WorkerVersionError       FB4030  a worker of the cluster has other versions than the driver
    │   ├── WorkerSetupError         FB4031  a worker of the cluster has no Forebay, or no Python for it
    │   ├── NotSharedError           FB4032  a worker does not see a folder that it must write into
    │   └── ArchiveError             FB4033  an environment cannot be packed, or the archive is for another one
    ├── StackError                   FB5000  the embedded broker and registry
    │   ├── JavaMissingError         FB5001
    │   ├── DownloadError            FB5002  retryable; exit code 3
    │   ├── ChecksumError            FB5003
    │   ├── StackStartError          FB5004
    │   └── StackNotRunningError     FB5005
    ├── BlackboardError              FB7000
    │   ├── ArtifactError            FB7001  nothing that a blackboard can hold
    │   ├── BlackboardTopicError     FB7002  a topic is kept in a way that would lose artifacts
    │   ├── IndexBehindError         FB7003  the local index does not get where a reader wants it; retryable
    │   ├── FencedError              FB7004  another program has this one's transactional id
    │   └── StoreClosedError         FB7005
    └── DashboardError               FB8000
        ├── ReadOnlyError            FB8001  the dashboard was started with --read-only
        ├── NeedsSessionError        FB8002  takes a session, and this process has none
        ├── NotLoggedInError         FB8003  a token is needed, or it is a wrong one; exit code 3
        ├── RefusedRequestError      FB8004  of another host, another page, or not meant for us
        ├── BadRequestError          FB8005  what a request says makes no sense
        ├── ExtraMissingError        FB8006  an optional package is not installed
        └── AttachError              FB8007  the dashboard that a command was attached to did not do it; exit code 3

Codes are stable: scripts may match on them. An error survives pickling, because it may cross from a
Spark executor to the driver, and its text starts with its code, because Spark hands it on as text.
"""

from __future__ import annotations

import re
from typing import Any

from forebay.error_base import ForebayError as ForebayError
from forebay.error_base import Position as Position
from forebay.error_base import all_errors as all_errors
from forebay.error_base import caret
from forebay.error_base import from_text as from_text
from forebay.masking import masked


class UnexpectedError(ForebayError):
    code = "FB0001"
    default_remedy = "run it again with forebay -v to see where it happened"


class StatementError(ForebayError):
    """Wrong SQL. Knows the statement (without its secrets) and the place in it, and draws a caret under it."""

    code = "FB1000"
    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        position: Position | None = None,
        statement: str = "",
        **details: Any,
    ) -> None:
        super().__init__(message, remedy=remedy, **details)
        self.position = position
        # Kept as it may be shown: an error is printed, logged and pickled by who knows whom.
        self.statement = masked(statement)

    def at(self, position: Position | None, statement: str = "") -> StatementError:
        """The same error, placed; a place already known is kept."""
        self.position = self.position or position
        self.statement = self.statement or masked(statement)
        return self

    def __str__(self) -> str:
        if not self.position:
            return super().__str__()
        head = f"{self.code}: {self.message} (line {self.position.line}, column {self.position.column})"
        parts = [head, *caret(self.statement, self.position)]
        if self.remedy:
            parts.append(f"  remedy: {self.remedy}")
        return "\n".join(parts)


class SqlSyntaxError(StatementError):
    code = "FB1001"


class UnsupportedSqlError(StatementError):
    code = "FB1002"


class UnknownObjectError(StatementError):
    code = "FB1101"


class ObjectExistsError(StatementError):
    code = "FB1102"


class ObjectInUseError(StatementError):
    code = "FB1103"


class OptionError(StatementError):
    """`option` names the key at fault, so that a caller can find its place in the statement."""

    code = "FB1200"

    def __init__(self, message: str, *, option: str = "", remedy: str = "", **details: Any) -> None:
        super().__init__(message, remedy=remedy, **details)
        self.option = option


class UnknownOptionError(OptionError):
    code = "FB1201"


class OptionValueError(OptionError):
    code = "FB1202"


class MissingOptionError(OptionError):
    code = "FB1203"


class OptionConflictError(OptionError):
    code = "FB1204"


class DeniedOptionError(OptionError):
    code = "FB1205"


class SecretMissingError(OptionError):
    code = "FB1206"
    default_remedy = (
        "secrets are never written to disk: run the CREATE SOURCE statement again in this session, "
        "or write the value as '${NAME}' so that it is taken from the environment"
    )


class RecordError(ForebayError):
    """One record that does not decode. `kind` is one of `forebay.formats.contract.Kind`."""

    code = "FB2000"

    def __init__(self, message: str, *, kind: str = "Other", remedy: str = "", **details: Any) -> None:
        super().__init__(message, remedy=remedy, **details)
        self.kind = kind


class BadRecordError(RecordError):
    code = "FB2001"
    default_remedy = "fix what wrote it, or ALTER SOURCE … ON ERROR = 'skip' or 'dead_letter'"


class TooManyErrorsError(RecordError):
    code = "FB2002"
    default_remedy = "fix what writes the topic, or ALTER SOURCE … ON ERROR = … with a higher limit"


class MostRejectedError(RecordError):
    code = "FB2003"
    default_remedy = "DESCRIBE EXTENDED SOURCE shows an example with its reason; --max-rejected sets the share that is borne"


class ConnectorError(ForebayError):
    code = "FB3000"


class UnreachableError(ConnectorError):
    code = "FB3001"
    retryable = True
    exit_code = 3
    default_remedy = "check the address, that the server is up, and that nothing in between blocks the port"


class AuthError(ConnectorError):
    code = "FB3002"
    exit_code = 3
    default_remedy = "check the user name, the password and the security settings; this is not retried"


class MissingAclError(AuthError):
    code = "FB3020"
    default_remedy = "allow it with kafka-acls; this is not retried"


class UnknownTopicError(ConnectorError):
    code = "FB3003"
    exit_code = 2


class OffsetOutOfRangeError(ConnectorError):
    code = "FB3004"
    default_remedy = (
        "the broker no longer has these records (retention or truncation); set 'fail.on.data.loss' = "
        "'false' to go on without them, with the ranges kept in DESCRIBE EXTENDED"
    )


class TopicRecreatedError(ConnectorError):
    code = "FB3005"
    default_remedy = (
        "offsets of the old topic mean nothing in the new one: drop the view and create it again to "
        "start on the new topic"
    )


class CommitError(ConnectorError):
    code = "FB3006"
    retryable = True


class ReadStalledError(ConnectorError):
    code = "FB3007"
    retryable = True
    default_remedy = "it is tried again, and nothing is passed over; if it goes on, see what the log of the partition's leader says"


class NoOffsetError(ConnectorError):
    code = "FB3008"
    default_remedy = "set 'auto.offset.reset' to earliest or latest, or commit offsets for the group first"


class ConnectorStateError(ConnectorError):
    code = "FB3009"


class NoColumnsError(ConnectorError):
    code = "FB3010"
    default_remedy = "declare the columns: CREATE SOURCE t (id BIGINT, …) …"


class SchemaChangedError(ConnectorError):
    code = "FB3011"
    default_remedy = (
        "CREATE OR REPLACE SOURCE with the new schema, or set 'schema.evolution' = 'ignore' to read what fits "
        "and refuse the rest record by record; views over the source are to be dropped first"
    )


class NewFieldsError(ConnectorError):
    """Ends a query: who runs it adds the columns and starts it again. Its text says which, as Spark hands on no more."""

    code = "FB3012"
    default_remedy = (
        "a session adds the columns and goes on by itself; elsewhere start the query again with them, and with "
        "the schema's id added to 'schema.evolution.from'"
    )

    @property
    def source(self) -> str:
        return str(self._place()[1])

    @property
    def schema_id(self) -> int:
        return int(self._place()[2])

    def _place(self) -> re.Match[str]:
        found = re.match(r"source '([^']*)': schema id (\d+) ", self.message)
        assert found is not None
        return found


class DeadLetterError(ConnectorError):
    code = "FB3013"
    default_remedy = (
        "see that the dead-letter topic is there and may be written, or ALTER SOURCE … ON ERROR = … to name another; "
        "naming it makes it"
    )


class WrongProtocolError(ConnectorError):
    code = "FB3014"
    exit_code = 3
    default_remedy = "check the address and 'kafka.security.protocol'; this is not retried"


class GroupInUseError(ConnectorError):
    code = "FB3015"
    default_remedy = (
        "give this source a group.id of its own; or, to divide the partitions with others, set group.mode = 'shared' in "
        "each of them"
    )


class PartitionsLostError(ConnectorError):
    code = "FB3016"
    retryable = True


class RuntimeFailure(ForebayError):
    code = "FB4000"


class QueryFailedError(RuntimeFailure):
    code = "FB4001"


class WaitTimeoutError(RuntimeFailure):
    code = "FB4002"
    exit_code = 4


class AlreadyRunningError(RuntimeFailure):
    code = "FB4003"
    default_remedy = "one process runs a view at a time: stop the other one, or read the view from here"


class CheckpointError(RuntimeFailure):
    code = "FB4004"


class SessionClosedError(RuntimeFailure):
    code = "FB4005"
    default_remedy = "open a new one with forebay.connect()"


class WorkerLostError(RuntimeFailure):
    code = "FB4006"
    retryable = True


class ChangeLogError(RuntimeFailure):
    code = "FB4007"
    default_remedy = (
        "read the log from a whole snapshot on (startup.mode = earliest, a topic that is not compacted), see in "
        "DESCRIBE EXTENDED SOURCE whether records were rejected, and with PostgreSQL set REPLICA IDENTITY FULL; "
        "then drop the view and create it again"
    )


class SelectFailedError(RuntimeFailure):
    code = "FB4008"


class SumOverflowError(RuntimeFailure):
    code = "FB4012"
    default_remedy = "create the view with a wider type, such as sum(CAST(x AS DECIMAL(38, 0)))"


class EvaluationError(RuntimeFailure):
    code = "FB4009"
    default_remedy = (
        "leave such rows out in WHERE, or write try_divide, a wider type, or CASE WHEN … around it"
    )


class ReplayFailedError(RuntimeFailure):
    code = "FB4010"


class ChangesGoneError(RuntimeFailure):
    code = "FB4011"
    default_remedy = "subscribe anew: the first answer is the view as it is now"


class SourcePausedError(RuntimeFailure):
    code = "FB4015"


class DiskFullError(RuntimeFailure):
    code = "FB4018"
    retryable = True
    default_remedy = (
        "make room on the disk of the session's home, its tables and Spark's temporary files: the query is tried again by "
        "itself, and goes on where it stood"
    )


class PoolHaltedError(RuntimeFailure):
    code = "FB4020"
    default_remedy = (
        "fix the handler or what it calls, and start the pool again: it goes on with the records that failed; or set "
        "'dead.letter.topic', 'on.error' = 'skip' or a higher 'max.errors'"
    )


class HandlerTimeoutError(RuntimeFailure):
    code = "FB4021"
    retryable = True
    default_remedy = "raise 'handler.timeout.ms', or let the handler give up earlier by itself"


class TransactionError(RuntimeFailure):
    code = "FB4022"
    default_remedy = "start the pool again; each running pool needs a transactional id of its own"


class PoolStateError(RuntimeFailure):
    code = "FB4023"
    exit_code = 2


class OutputError(RuntimeFailure):
    code = "FB4024"
    default_remedy = (
        "send bytes or text to a topic that is there, and no more than it takes: its max.message.bytes, and "
        "'kafka.message.max.bytes' of the pool"
    )


class StorageError(RuntimeFailure):
    code = "FB4025"
    retryable = True


class WorkerVersionError(RuntimeFailure):
    code = "FB4030"
    default_remedy = "give the workers what the driver has: forebay pack -o forebay-env.tar.gz, then --archive forebay-env.tar.gz"


class WorkerSetupError(RuntimeFailure):
    code = "FB4031"
    default_remedy = (
        "give the workers what the driver has: forebay pack -o forebay-env.tar.gz, then --archive forebay-env.tar.gz; "
        "or install the same environment at the same path on every worker"
    )


class NotSharedError(RuntimeFailure):
    code = "FB4032"
    default_remedy = (
        "tables must be where all machines of the cluster reach them: a home on a volume that every worker mounts at the "
        "same path, or storage = 's3://…'; what the topics hold is read again from where the view stands"
    )


class ArchiveError(RuntimeFailure):
    code = "FB4033"
    exit_code = 2
    default_remedy = "make it anew, with the Python that runs the driver: forebay pack"


class StackError(ForebayError):
    code = "FB5000"


class JavaMissingError(StackError):
    code = "FB5001"
    default_remedy = (
        "install a JRE of version 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    )


class DownloadError(StackError):
    code = "FB5002"
    retryable = True
    exit_code = 3


class ChecksumError(StackError):
    code = "FB5003"


class StackStartError(StackError):
    code = "FB5004"


class StackNotRunningError(StackError):
    code = "FB5005"
    default_remedy = "start it with: forebay dev up"


class BlackboardError(ForebayError):
    code = "FB7000"


class ArtifactError(BlackboardError):
    code = "FB7001"


class BlackboardTopicError(BlackboardError):
    code = "FB7002"


class IndexBehindError(BlackboardError):
    code = "FB7003"
    retryable = True
    default_remedy = (
        "an open transaction of somebody else may hold it back (the broker ends it after its timeout): try again, "
        "raise 'read.timeout.ms', or read with consistency = 'local'"
    )


class FencedError(BlackboardError):
    code = "FB7004"
    default_remedy = (
        "give each program that runs at the same time a 'transactional.id' (KAFKA_TX_ID) of its own; if the other one "
        "has replaced this one, there is nothing to do: nothing of this one was committed after that"
    )


class StoreClosedError(BlackboardError):
    code = "FB7005"
    default_remedy = "make a new one"


class DashboardError(ForebayError):
    code = "FB8000"


class ReadOnlyError(DashboardError):
    code = "FB8001"
    default_remedy = "start the dashboard without --read-only to change something with it"


class NeedsSessionError(DashboardError):
    code = "FB8002"
    default_remedy = "start the dashboard with the pipeline: forebay run --ui; or attach to one that was: forebay sql --attach URL"


class NotLoggedInError(DashboardError):
    code = "FB8003"
    exit_code = 3
    default_remedy = (
        "give the token: Authorization: Bearer …, or FOREBAY_UI_TOKEN for a command with --attach; "
        "who started the dashboard has it"
    )


class RefusedRequestError(DashboardError):
    code = "FB8004"


class BadRequestError(DashboardError):
    code = "FB8005"
    exit_code = 2


class ExtraMissingError(DashboardError):
    code = "FB8006"
    exit_code = 2


class AttachError(DashboardError):
    code = "FB8007"
    exit_code = 3
