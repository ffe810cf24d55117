"""The option table: every key, every default, and what each mistake gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forebay.connectors.datagen import DATAGEN
from forebay.deadletter.policy import DEAD_LETTER, OTHERS, STRATEGIES
from forebay.errors import (
    DeniedOptionError,
    MissingOptionError,
    OptionConflictError,
    OptionError,
    OptionValueError,
    SecretMissingError,
    UnknownOptionError,
)
from forebay.kafka.options import KAFKA, PASS_THROUGH
from forebay.options import (
    ANY_TEXT,
    MASK,
    REGEX,
    SIZE,
    WORDS,
    Option,
    OptionTable,
    choice,
    expand,
    fraction,
    integer,
)

REQUIRED = {"bootstrap.servers": "b:9092", "topic": "orders", "group.id": "g"}

# Options of the source
SEED_DEFAULTS: dict[str, Any] = {
    "format": "json",
    "key.format": None,
    "auto.offset.reset": "earliest",
    "max.poll.records": 1000,
    "poll.timeout.ms": 100,
    "schema.registry.url": None,
    "watermark.max.out.of.orderness.ms": 5000,
    "watermark.idle.timeout.ms": 30000,
    "backpressure.high.watermark": 0.8,
    "backpressure.low.watermark": 0.5,
    "include.metadata": False,
    "partition.assignment.strategy": "cooperative-sticky",
}
# Options of a registry and of formats
SEED_PASS_THROUGH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.username": "ann",
    "kafka.sasl.password": "hunter2",
    "kafka.ssl.ca.location": "/etc/ca.pem",
    "kafka.ssl.certificate.location": "/etc/me.pem",
    "kafka.ssl.key.location": "/etc/me.key",
    "kafka.fetch.min.bytes": "2",
    "kafka.fetch.max.bytes": "2000",
    "kafka.max.partition.fetch.bytes": "1000",
    "kafka.session.timeout.ms": "30000",
    "kafka.heartbeat.interval.ms": "1000",
    "kafka.max.poll.interval.ms": "60000",
}
# What users of Spark and of other SQL engines expect besides.
EXTRA_DEFAULTS: dict[str, Any] = {
    "topics": None,
    "topic.pattern": None,
    "startup.mode": "group-offsets",
    "startup.timestamp.ms": None,
    "startup.specific.offsets": None,
    "isolation.level": "read_committed",
    "include.headers": False,
    "event.time.column": None,
    "session.timeout.ms": 45000,
    "heartbeat.interval.ms": 3000,
    "max.poll.interval.ms": 300000,
    "fetch.min.bytes": 1,
    "fetch.max.bytes": 52428800,
    "fail.on.data.loss": True,
    "schema.registry.username": None,
    "schema.registry.password": None,
    "schema.registry.ssl.ca.location": None,
    "schema.registry.ssl.certificate.location": None,
    "schema.registry.ssl.key.location": None,
}
SECRETS = [
    "schema.registry.password",
    "schema.registry.bearer.token",
    "schema.registry.ssl.key.password",
    "kafka.sasl.password",
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.password",
    "kafka.ssl.key.pem",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
]
TABLES = [KAFKA, DEAD_LETTER, DATAGEN]
DECLARED = [(table, option) for table in TABLES for option in table.options]


@pytest.fixture(autouse=True)
def _no_broker_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def bind(**more: str) -> Any:
    return KAFKA.bind(REQUIRED | {key.replace("_", "."): text for key, text in more.items()})


def refusal(given: dict[str, str], table: OptionTable = KAFKA) -> OptionError:
    with pytest.raises(OptionError) as caught:
        table.bind(given)
    return caught.value


# -- the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "default"), [*SEED_DEFAULTS.items(), *EXTRA_DEFAULTS.items()])
def test_every_option_of_the_specification_exists_with_its_default(key: str, default: Any) -> None:
    assert key in KAFKA
    value = KAFKA.bind(REQUIRED)[key]
    assert value == default
    assert type(value) is type(default)


def test_the_dead_letter_options_have_the_defaults_of_the_specification() -> None:
    bound = DEAD_LETTER.bind({"dead_letter_topic": "trades-dlq"})
    assert {key: value for key, value in bound.items() if value is not None} == {
        "dead_letter_topic": "trades-dlq",
        "max_errors_per_second": 100,
        "include_raw_message": True,
        "max_raw_message_size": 1_048_576,
    }
    assert STRATEGIES == ("skip", "dead_letter", "fail")


def test_dead_letters_need_one_place_to_go_to_and_the_other_strategies_take_none() -> None:
    assert isinstance(refusal({}, DEAD_LETTER), MissingOptionError)
    both = {"dead_letter_topic": "x", "dead_letter_path": "y"}
    assert isinstance(refusal(both, DEAD_LETTER), OptionConflictError)
    assert isinstance(refusal({"dead_letter_topic": "x"}, OTHERS), UnknownOptionError)


@pytest.mark.parametrize(("table", "option"), DECLARED, ids=lambda value: getattr(value, "name", "in"))
def test_every_declaration_is_complete_and_its_own_default_and_example_are_valid(
    table: OptionTable, option: Option
) -> None:
    assert option.description
    assert option.kind.expected
    assert option.since
    assert table.get(option.name) is option
    for text in (option.default, option.example):
        if text and not text.startswith("${"):
            option.kind.parse(text)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_no_option_is_declared_twice(table: OptionTable) -> None:
    assert len(table.names()) == len(set(table.names()))


def test_formats_are_those_of_the_specification() -> None:
    for word in ("json", "avro", "protobuf", "debezium-json", "csv", "raw"):
        assert bind(format=word)["format"] == word
        assert bind(key_format=word.upper(), key_columns="id")["key.format"] == word


def test_the_table_is_a_json_schema_for_editors() -> None:
    schema = json.loads(json.dumps(KAFKA.json_schema()))
    assert schema["type"] == "object"
    assert list(schema["properties"]) == KAFKA.names()
    assert schema["required"] == ["bootstrap.servers", "group.id"]
    assert schema["additionalProperties"] is False
    assert list(schema["patternProperties"]) == [r"^kafka\."]
    assert schema["properties"]["format"]["enum"][0] == "json"
    assert schema["properties"]["format"]["default"] == "json"
    assert schema["properties"]["max.poll.records"]["type"] == "integer"
    assert schema["properties"]["include.metadata"]["type"] == "boolean"
    assert schema["properties"]["backpressure.low.watermark"]["type"] == "number"
    assert all(entry["description"] for entry in schema["properties"].values())
    assert "patternProperties" not in DEAD_LETTER.json_schema()


# -- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("group.ids", "group.id"),
        ("group_id", "group.id"),
        ("bootstrap.server", "bootstrap.servers"),
        ("topc", "topic"),
        ("include.meta", "include.metadata"),
        ("startup-mode", "startup.mode"),
        ("Format", "format"),
    ],
)
def test_an_unknown_key_is_an_error_that_asks_whether_a_near_one_was_meant(key: str, meant: str) -> None:
    error = refusal(REQUIRED | {key: "x"})
    assert isinstance(error, UnknownOptionError)
    assert error.option == key
    assert f"no option '{key}'" in error.message
    assert f"'{meant}'" in error.remedy


def test_an_unknown_key_that_is_near_to_nothing_is_told_of_the_pass_through() -> None:
    assert "'kafka.zzzzzz'" in refusal(REQUIRED | {"zzzzzz": "x"}).remedy
    assert "dead_letter_topic" in refusal({"zzzzzz": "x"}, DEAD_LETTER).remedy


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("format", "jsn", "one of json, avro, protobuf, debezium-json, csv, raw"),
        ("auto.offset.reset", "oldest", "one of earliest, latest, none"),
        ("max.poll.records", "0", "a whole number from 1 to 1000000"),
        ("max.poll.records", "many", "a whole number from 1 to 1000000"),
        ("max.poll.records", "1.5", "a whole number"),
        ("max.records.per.batch", "-1", "a whole number of at least 1"),
        ("poll.timeout.ms", "", "a whole number"),
        ("include.metadata", "yes", "true or false"),
        ("backpressure.high.watermark", "1.1", "a number from 0 to 1"),
        ("backpressure.low.watermark", "nan", "a number from 0 to 1"),
        ("topic", "  ", "a text that is not empty"),
        ("csv.delimiter", ";;", "one character"),
        ("csv.delimiter", "\n", "one character"),
        ("startup.mode", "begin", "one of group-offsets, earliest, latest, timestamp, specific-offsets"),
        ("isolation.level", "serializable", "one of read_committed, read_uncommitted"),
    ],
)
def test_a_bad_value_is_an_error_that_says_what_was_expected(key: str, text: str, expected: str) -> None:
    error = refusal(REQUIRED | {key: text})
    assert isinstance(error, OptionValueError)
    assert error.option == key
    assert error.message.startswith(f"'{key}' cannot be {text!r}: expected ")
    assert expected in error.message


def test_a_bad_value_near_to_a_choice_is_asked_about_and_another_gets_an_example() -> None:
    assert refusal(REQUIRED | {"format": "jsn"}).remedy == "did you mean 'json'?"
    assert refusal(REQUIRED | {"format": "zzz"}).remedy == "for example: 'format' = 'avro'"


@pytest.mark.parametrize("pattern", ["orders-(", "*"])
def test_a_topic_pattern_that_is_no_regular_expression_is_refused(pattern: str) -> None:
    given = {"bootstrap.servers": "b:1", "group.id": "g", "topic.pattern": pattern}
    assert "a regular expression" in refusal(given).message


@pytest.mark.parametrize("key", ["bootstrap.servers", "group.id", "topic"])
def test_a_missing_required_key_is_an_error_with_an_example(key: str) -> None:
    error = refusal({name: text for name, text in REQUIRED.items() if name != key})
    assert isinstance(error, MissingOptionError)
    assert error.option == key
    assert f"add '{key}' = '" in error.remedy


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("topic", "topics"),
        ("topic", "topic.pattern"),
        ("topics", "topic.pattern"),
        ("schema.registry.password", "schema.registry.bearer.token"),
    ],
)
def test_two_keys_that_exclude_each_other_are_an_error_at_the_second(one: str, other: str) -> None:
    base = {"bootstrap.servers": "b:1", "group.id": "g"} | ({} if one[0] == "t" else {"topic": "t"})
    for first, second in ((one, other), (other, one)):
        error = refusal(base | {first: "a", second: "a"})
        assert isinstance(error, OptionConflictError)
        assert error.option == second
        assert first in error.message


@pytest.mark.parametrize(("high", "low"), [("0.5", "0.5"), ("0.4", "0.5")])
def test_the_high_watermark_of_backpressure_lies_above_the_low_one(high: str, low: str) -> None:
    error = refusal(REQUIRED | {"backpressure.high.watermark": high, "backpressure.low.watermark": low})
    assert "must be > 'backpressure.low.watermark'" in error.message


@pytest.mark.parametrize(
    ("mode", "key", "text"),
    [("timestamp", "startup.timestamp.ms", "17"), ("specific-offsets", "startup.specific.offsets", "0:1")],
)
def test_a_startup_mode_needs_its_own_setting_and_takes_no_others(mode: str, key: str, text: str) -> None:
    missing = refusal(REQUIRED | {"startup.mode": mode})
    assert isinstance(missing, MissingOptionError)
    assert missing.option == key
    for other in ("earliest", "group-offsets"):
        conflict = refusal(REQUIRED | {"startup.mode": other, key: text})
        assert isinstance(conflict, OptionConflictError)
        assert conflict.option == key
    assert KAFKA.bind(REQUIRED | {"startup.mode": mode, key: text})[key] is not None


# -- kinds of values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0:42,1:7", {"": {"0": 42, "1": 7}}),
        ("0:42;1:7", {"": {"0": 42, "1": 7}}),
        (" 0 : 42 ", {"": {"0": 42}}),
        ("partition:0,offset:42;partition:1,offset:7", {"": {"0": 42, "1": 7}}),
        ('{"orders": {"0": 42}}', {"orders": {"0": 42}}),
    ],
)
def test_specific_offsets_are_read_in_three_spellings(text: str, value: dict[str, Any]) -> None:
    bound = bind(startup_mode="specific-offsets", startup_specific_offsets=text)
    assert bound["startup.specific.offsets"] == value


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0:1:2",
        "a:1",
        "0:-1",
        "0:1,0:2",
        "partition:0,offset:1;rubbish",
        "partition:0,offset:1;partition:x,offset:2",
        "{",
        '{"orders": 3}',
        '{"orders": {"0": 1.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": null}}',
        '{"orders": {"x": 1}}',
    ],
)
def test_specific_offsets_that_are_not_understood_in_full_are_refused(text: str) -> None:
    error = refusal(REQUIRED | {"startup.mode": "specific-offsets", "startup.specific.offsets": text})
    assert isinstance(error, OptionValueError)
    assert "offsets such as" in error.message


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 1 << 20), ("1MB", 1 << 20), ("512 kb", 512 << 10), ("2GiB", 2 << 30), ("7B", 7)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert SIZE.parse(text) == size


def test_a_size_in_an_unknown_unit_is_refused() -> None:
    error = refusal({"dead_letter_topic": "d", "max_raw_message_size": "1 furlong"}, DEAD_LETTER)
    assert "a size such as" in error.message


@pytest.mark.parametrize("budget", ["0", "4", "1048575", "1025GB"])
def test_a_budget_in_which_no_batch_has_room_is_refused(budget: str) -> None:
    error = refusal(REQUIRED | {"fetch.budget.bytes": budget})
    assert isinstance(error, OptionValueError)
    assert "a size from 1MB to 1024GB" in error.message
    assert KAFKA.bind(REQUIRED | {"fetch.budget.bytes": "1MB"})["fetch.budget.bytes"] == 1 << 20


def test_kinds_parse_what_they_say() -> None:
    assert WORDS.parse("a, b ,c") == ("a", "b", "c")
    assert "names, separated by commas" in refusal({"topics": "a,,b"}).message
    assert integer(0, 5).parse(" 5 ") == 5
    assert fraction().parse("1") == 1.0
    assert choice("one", "two").parse(" TWO ") == "two"
    assert ANY_TEXT.parse("") == ""
    assert REGEX.parse("a.*") == "a.*"
    assert bind(csv_delimiter="\\t")["csv.delimiter"] == "\t"


# -- the environment ------------------------------------------------------------------------------------


def test_the_brokers_come_from_the_environment_unless_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "env:9092")
    without = {key: text for key, text in REQUIRED.items() if key != "bootstrap.servers"}
    assert KAFKA.bind(without)["bootstrap.servers"] == "env:9092"
    assert KAFKA.bind(REQUIRED)["bootstrap.servers"] == "b:9092"


def test_a_value_that_is_a_reference_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOPIC", "from-env")
    monkeypatch.setenv("PASSWORD", "hunter2")
    given = REQUIRED | {
        "topic": "${THE_TOPIC}",
        "group.id": "${NO_SUCH_GROUP:-fallback}",
        "kafka.sasl.password": "${PASSWORD}",
        "csv.null": "not ${THE_TOPIC} whole",
    }
    bound = KAFKA.bind(given)
    assert bound["topic"] == "from-env"
    assert bound["group.id"] == "fallback"
    assert bound["csv.null"] == "not ${THE_TOPIC} whole"
    assert bound.passed_through() == {"sasl.password": "hunter2"}
    assert bound.given == given


@pytest.mark.parametrize("key", ["topic", "kafka.sasl.password"])
def test_a_reference_to_nothing_is_an_error_that_names_the_variable(key: str) -> None:
    error = refusal(REQUIRED | {key: "${NO_SUCH_VARIABLE}"})
    assert isinstance(error, OptionValueError)
    assert error.option == key
    assert "NO_SUCH_VARIABLE" in error.message
    assert "export NO_SUCH_VARIABLE=" in error.remedy


def test_a_script_is_expanded_except_where_an_option_is_nothing_but_a_reference() -> None:
    text = "CREATE ${KIND} t WITH ('topic' = '${A}', 'x' = 'pre-${A}', y = ${B:-7}, z = '${C:-d}')"
    assert expand(text, {"KIND": "SOURCE", "A": "1"}) == (
        "CREATE SOURCE t WITH ('topic' = '${A}', 'x' = 'pre-1', y = 7, z = '${C:-d}')"
    )


def test_a_script_with_a_variable_that_is_not_set_names_it_and_the_line() -> None:
    with pytest.raises(OptionValueError, match=r"NOPE is not set \(line 3\)"):
        expand("a\nb\n  ${NOPE}", {})


def test_what_is_no_reference_is_left_alone() -> None:
    assert expand("$NAME ${1X} ${} $ {A}", {"NAME": "x", "A": "x"}) == "$NAME ${1X} ${} $ {A}"


def test_expand_takes_the_processs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_NAME", "orders")
    assert expand("SELECT * FROM ${SOME_NAME}") == "SELECT * FROM orders"


# -- secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_is_masked_wherever_options_are_shown(key: str) -> None:
    assert KAFKA.is_secret(key)
    bound = KAFKA.bind(REQUIRED | {key: "hunter2"})
    for text in (KAFKA.shown(key, "hunter2"), repr(bound), str(bound), f"{bound}"):
        assert "hunter2" not in text
        assert MASK in text


@pytest.mark.parametrize("key", SECRETS)
def test_a_reference_to_a_secret_is_shown_but_not_the_default_beside_it(key: str) -> None:
    assert KAFKA.shown(key, "${PASSWORD}") == "${PASSWORD}"
    assert KAFKA.shown(key, "${PASSWORD:-hunter2}") == "${PASSWORD:-" + MASK + "}"


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize("text", [MASK, "${NOT_SET_HERE:-" + MASK + "}"])
def test_a_masked_secret_is_never_taken_for_the_secret_itself(key: str, text: str) -> None:
    error = refusal(REQUIRED | {key: text})
    assert isinstance(error, SecretMissingError)
    assert error.option == key
    assert "${NAME}" in error.remedy


@pytest.mark.parametrize("key", ["topic", "group.id", "kafka.sasl.username", "kafka.client.id", "nonsense"])
def test_what_is_no_secret_is_shown(key: str) -> None:
    assert not KAFKA.is_secret(key)
    assert KAFKA.shown(key, "text") == "text"


def test_a_refused_secret_is_not_repeated_in_the_error() -> None:
    pin = Option("pin", integer(0), "a secret number", secret=True)
    error = refusal({"pin": "hunter2"}, OptionTable("a thing", (pin,)))
    assert "hunter2" not in str(error)
    assert "that value" in error.message


def test_a_denied_secret_is_not_repeated_in_the_error() -> None:
    for key in ("sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "sasl.kerberos.principal"):
        assert "hunter2" not in str(refusal(REQUIRED | {f"kafka.{key}": "file:$hunter2"}))


# -- the pass-through -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "text"), SEED_PASS_THROUGH.items())
def test_every_pass_through_key_of_the_specification_reaches_the_client(key: str, text: str) -> None:
    assert KAFKA.bind(REQUIRED | {key: text}).passed_through() == {key.removeprefix("kafka."): text}


@pytest.mark.parametrize("key", sorted(PASS_THROUGH.denied))
def test_a_key_that_endangers_or_that_forebay_owns_is_denied_with_a_reason(key: str) -> None:
    error = refusal(REQUIRED | {f"kafka.{key}": "x"})
    assert isinstance(error, DeniedOptionError)
    assert error.option == f"kafka.{key}"
    assert PASS_THROUGH.denied[key] in error.message


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
        "plugin.library.paths",
        "sasl.kerberos.kinit.cmd",
        "enable.auto.commit",
        "bootstrap.servers",
        "metadata.broker.list",
        "group.id",
        "isolation.level",
        "auto.offset.reset",
        "topic.auto.offset.reset",
        "partition.assignment.strategy",
    ],
)
def test_these_keys_are_among_the_denied(key: str) -> None:
    assert key in PASS_THROUGH.denied


@pytest.mark.parametrize(
    "text",
    [
        "com.sun.security.auth.module.JndiLoginModule required;",
        "org.apache.kafka.common.security.plain.PLAINLOGINMODULE",
        "jndi:ldap://evil/x",
        "LDAP://evil",
        "ldaps : //evil",
        "rmi://evil",
        "file:///etc/passwd",
    ],
)
def test_a_value_that_endangers_is_denied_under_any_key(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(refusal(REQUIRED | {"kafka.anything": text}), DeniedOptionError)
    monkeypatch.setenv("HIDDEN", text)
    assert isinstance(refusal(REQUIRED | {"kafka.anything": "${HIDDEN}"}), DeniedOptionError)


@pytest.mark.parametrize("text", ["file:x", "a file: b", "ldap://me", "PlainLoginModule", 'q"`$(x)'])
@pytest.mark.parametrize("key", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"])
def test_a_password_is_a_password_whatever_is_in_it(key: str, text: str) -> None:
    assert KAFKA.bind(REQUIRED | {f"kafka.{key}": text}).passed_through() == {key: text}


@pytest.mark.parametrize("key", ["sasl.kerberos.principal", "sasl.kerberos.keytab"])
def test_what_is_put_into_a_command_line_holds_nothing_that_a_shell_understands(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for good in ("me", "kafka/host-1.example.org@EXAMPLE.ORG", "me_2@X.Y"):
        assert KAFKA.bind(REQUIRED | {f"kafka.{key}": good}).passed_through() == {key: good}
    shell = [f"me{c}x" for c in " \t\n\r\"'`$\\;|&<>(){}[]*?!#%^~\0é"]
    for bad in (*shell, "x; touch /tmp/owned", "$(id)", '" || id "', "-c", "", "me\n"):
        error = refusal(REQUIRED | {f"kafka.{key}": bad})
        assert isinstance(error, DeniedOptionError), bad
        assert "shell command" in error.message
    monkeypatch.setenv("HIDDEN", "x$(id)")
    assert isinstance(refusal(REQUIRED | {f"kafka.{key}": "${HIDDEN}"}), DeniedOptionError)


@pytest.mark.parametrize("path", ["/etc/security/keytabs/kafka.service.keytab", "./k-1,2+3=4.keytab"])
def test_a_keytab_is_a_path(path: str) -> None:
    bound = KAFKA.bind(REQUIRED | {"kafka.sasl.kerberos.keytab": path})
    assert bound.passed_through() == {"sasl.kerberos.keytab": path}


def test_a_table_without_a_pass_through_passes_nothing() -> None:
    assert DEAD_LETTER.bind({"dead_letter_topic": "d"}).passed_through() == {}


def test_bound_options_are_a_mapping_of_every_declared_name() -> None:
    bound = KAFKA.bind(REQUIRED)
    assert list(bound) == KAFKA.names()
    assert len(bound) == len(KAFKA.names())
    with pytest.raises(KeyError):
        bound["nonsense"]


def test_a_key_s_format_and_its_columns_come_together() -> None:
    with pytest.raises(MissingOptionError, match=r"'key\.format' needs 'key\.columns'"):
        bind(key_format="json")
    with pytest.raises(MissingOptionError, match=r"'key\.columns' needs 'key\.format'"):
        bind(key_columns="id")
    assert bind(key_format="csv", key_columns="a, b")["key.columns"] == ("a", "b")
    assert bind(format="raw", key_format="raw")["key.columns"] is None


def test_a_key_has_the_options_of_its_format_to_itself() -> None:
    bound = bind(**{"key.csv.delimiter": ";", "csv.quote": ""})
    assert (bound["csv.delimiter"], bound["key.csv.delimiter"], bound["csv.quote"]) == (",", ";", "")
