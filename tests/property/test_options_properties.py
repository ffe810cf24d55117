"""What holds for any text in any option."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import OptionError, OptionValueError
from forebay.kafka.options import KAFKA
from forebay.options import MASK, SIZE, Options, dereference, expand

REQUIRED = {"bootstrap.servers": "b:9092", "topic": "orders", "group.id": "g"}
SECRET_KEYS = [option.name for option in KAFKA.options if option.secret] + [
    "kafka.sasl.password",
    "kafka.ssl.key.pem",
]
names = st.text(string.ascii_letters + "_", min_size=1, max_size=12)
keys = st.one_of(
    st.sampled_from(KAFKA.names()), st.text(max_size=20), st.text(max_size=12).map("kafka.{}".format)
)


@given(st.dictionaries(keys, st.text(max_size=30), max_size=4))
def test_binding_gives_options_or_an_option_error_that_names_a_key(more: dict[str, str]) -> None:
    result: Options | OptionError
    try:
        result = KAFKA.bind(REQUIRED | more)
    except OptionError as error:
        result = error
    if isinstance(result, OptionError):
        assert result.option in {*KAFKA.names(), *more}
        assert str(result).startswith("FB12")
    else:
        assert list(result) == KAFKA.names()


@given(st.sampled_from(SECRET_KEYS), st.text(string.ascii_lowercase, min_size=8), names)
def test_nothing_that_is_shown_contains_a_secret(key: str, secret: str, name: str) -> None:
    secret = f"<{secret}>"
    for text in (secret, f"${{{name}:-{secret}}}"):
        assert secret not in KAFKA.shown(key, text)
        assert MASK in KAFKA.shown(key, text)
        assert secret not in repr(KAFKA.bind(REQUIRED | {key: text}))


@given(st.text().filter(lambda text: "${" not in text))
def test_a_text_without_references_is_expanded_to_itself(text: str) -> None:
    assert expand(text, {}) == text
    assert dereference("k", text) == text


@given(names, st.text(), st.text(string.ascii_letters + " \n", max_size=10))
def test_a_reference_in_a_script_is_replaced_once_and_its_value_is_not_read_again(
    name: str, value: str, around: str
) -> None:
    assert expand(f"{around}${{{name}}}{around}", {name: value}) == around + value + around
    assert expand(f"'${{{name}}}'", {name: value}) == f"'${{{name}}}'"


@given(st.text(max_size=8))
def test_a_size_is_a_number_of_bytes_or_refused(text: str) -> None:
    try:
        size = SIZE.parse(text)
    except (ValueError, KeyError):
        return
    assert size >= 0


@given(st.text(max_size=30))
def test_specific_offsets_are_understood_in_full_or_refused(text: str) -> None:
    try:
        bound = KAFKA.bind(REQUIRED | {"startup.mode": "specific-offsets", "startup.specific.offsets": text})
    except OptionValueError:
        return
    for partitions in bound["startup.specific.offsets"].values():
        assert all(number.lstrip("-").isdigit() and offset >= 0 for number, offset in partitions.items())


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), min_size=1))
def test_specific_offsets_mean_the_same_in_every_spelling(offsets: dict[int, int]) -> None:
    plain = ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())
    flink = ";".join(f"partition:{partition},offset:{offset}" for partition, offset in offsets.items())
    expected = {"": {str(partition): offset for partition, offset in offsets.items()}}
    for text in (plain, flink):
        bound = KAFKA.bind(REQUIRED | {"startup.mode": "specific-offsets", "startup.specific.offsets": text})
        assert bound["startup.specific.offsets"] == expected
