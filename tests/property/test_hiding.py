"""Nothing that is masked is in what is shown, of whatever documents and patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forebay.deadletter.letter import Letter
from forebay.deadletter.masked import LetterMask
from forebay.hiding import HIDDEN, Mask, restored, without

NAMES = st.sampled_from(["email", "Email", "card", "cardNumber", "name", "customer", "a.b", "items", "id"])
PATTERNS = st.lists(
    st.sampled_from(["email", "card*", "customer.name", "c*r", "items", "*", "a.b", "?d"]),
    min_size=1, max_size=3, unique=True,
).map(tuple)  # fmt: skip
# Texts that occur nowhere else: what is searched for below must not be there by chance.
SECRETS = st.integers(10**12, 10**13 - 1)
LEAVES = st.one_of(
    SECRETS,
    SECRETS.map(lambda number: f"secret{number}"),
    SECRETS.map(lambda number: f'quo"ted\\{number} é \u2028'),
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def hidden_leaves(mask: Mask, value: Any, path: tuple[str, ...] = ()) -> list[Any]:
    """Worked out another way: all leaves, each with its path."""
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in hidden_leaves(mask, item, (*path, name))]
    if isinstance(value, list):
        return [leaf for item in value for leaf in hidden_leaves(mask, item, path)]
    return [value] if any(mask.hides(path[: end + 1]) for end in range(len(path))) else []


def forms(leaf: Any) -> set[str]:
    return {"".join(char for char in str(leaf) if char.isdigit())}


def no_value_twice(document: Any) -> bool:
    """One that is masked may also stand where it is not."""
    leaves = [form for leaf in hidden_leaves(Mask(("*",)), {"all": document}) for form in forms(leaf)]
    return len(leaves) == len(set(leaves))


def letter_of(value: bytes, message: str = "m", field: str | None = None, **more: Any) -> Letter:
    return Letter(
        "s", "t", 0, 1, 0, None, value, (), "TypeConversion", message, 0, field, size=len(value), **more
    )


@given(DOCUMENTS, PATTERNS, st.sampled_from([None, 2]), st.booleans())
def test_no_masked_value_is_in_what_is_shown(
    document: Any, patterns: tuple[str, ...], indent: int | None, ascii_: bool
) -> None:
    mask = Mask(patterns)
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_)
    masked = hidden_leaves(mask, document)
    assume(no_value_twice(document) or not masked)
    found = mask.json_text(text)
    assert found.whole
    rendered = [found.text, json.dumps(mask.row(document), ensure_ascii=False)]
    letter = letter_of(text.encode(), f"email: found {masked[:1]!r}, found string {masked[-1:]!r}", "name")
    shown = LetterMask(mask).letter(letter)
    rendered += [repr(shown), json.dumps(shown.to_json()), (shown.value or b"").decode(), shown.message]
    for leaf in masked:
        for form in forms(leaf):
            assert not any(form in each for each in rendered)
    # And what is not masked is there.
    assert json.loads(found.text) is not None or document is None
    if not masked:
        assert json.loads(found.text) == document or found.values


@given(DOCUMENTS, PATTERNS, st.data())
def test_no_masked_value_is_shown_of_a_text_that_is_broken(
    document: Any, patterns: tuple[str, ...], data: st.DataObject
) -> None:
    assume(no_value_twice(document))
    mask, text = Mask(patterns), json.dumps(document, ensure_ascii=False)
    at = data.draw(st.integers(0, len(text)))
    broken = (
        text[:at]
        + data.draw(st.sampled_from(["", '"', "{", "}", "]", ",", ":", "\\", "\x00"]))
        + text[at + 1 :]
    )
    found = mask.json_text(broken)
    for leaf in hidden_leaves(mask, document):
        digits = "".join(char for char in str(leaf) if char.isdigit())
        # A break may make another field of a value, or a name: then it is not masked any more, whoever reads it.
        if digits in found.text:
            assert _elsewhere(broken, digits, mask)


def _elsewhere(text: str, digits: str, mask: Mask) -> bool:
    """Whether what is shown is not the value of a masked field: as far as the text is JSON, the path says so."""
    shown = mask.json_text(text)
    return digits not in "".join(shown.values)


@given(DOCUMENTS, PATTERNS)
def test_an_edit_that_leaves_the_marks_alone_gives_the_true_bytes_back(
    document: Any, patterns: tuple[str, ...]
) -> None:
    text = json.dumps(document)
    found = Mask(patterns).json_text(text)
    assert restored(found.text, found) == text


@given(st.dictionaries(NAMES, LEAVES, min_size=1), PATTERNS)
def test_an_edit_may_change_what_is_not_masked(document: dict[str, Any], patterns: tuple[str, ...]) -> None:
    mask = Mask(patterns)
    assume(not mask.names("zip"))
    found = mask.json_text(json.dumps(document))
    edited = {**json.loads(found.text), "zip": 1}
    assert json.loads(restored(json.dumps(edited, ensure_ascii=False), found)) == {**document, "zip": 1}


def test_a_mark_that_stands_for_nothing_is_refused() -> None:
    found = Mask(("email",)).json_text('{"email": "x@y.z", "id": 1}')
    for edited in ('{"email": "•••2"}', '{"email": "a •••"}', '{"email": •••}'):
        with pytest.raises(ValueError, match=HIDDEN):
            restored(edited, found)
    assert restored('{"email": "new", "id": 2}', found) == '{"email": "new", "id": 2}'


def test_a_record_that_holds_a_mark_itself_cannot_be_mistaken() -> None:
    found = Mask(("email",)).json_text('{"email": "x", "note": "•••"}')
    with pytest.raises(ValueError, match="cannot be known"):
        restored(found.text, found)


def test_patterns_are_names_globs_and_paths() -> None:
    mask = Mask(("email", "card*", "customer.phone"))
    assert mask.hides(("EMAIL",))
    assert mask.hides(("payload", "after", "cardNumber"))
    assert mask.hides(("payload", "customer", "phone", "area"))
    assert not mask.hides(("phone",))
    assert mask.hides_field("items[3].email")
    assert mask.hides_field("key.email")
    assert not mask.hides_field("items[3].name")
    assert not Mask()


def test_the_fault_is_marked_where_it_is_in_what_is_shown() -> None:
    text = '{"email": "somebody@example.org", "price": "cheap"}'
    found = Mask(("email",)).json_text(text)
    at = found.place(text.index('"cheap"'))
    assert found.text[at:].startswith('"cheap"')


def test_a_message_that_quotes_a_masked_value_does_not() -> None:
    assert without("found string 'a\\'b' and 12", ["a'b", "12"]) == f"found string '{HIDDEN}' and {HIDDEN}"
    mask = LetterMask(Mask(("email",)))
    letter = letter_of(b'{"email": "a@b.c"}', "email: expected BIGINT, found string 'a@b.c'", "email")
    assert mask.letter(letter).message == "email: expected BIGINT, found string <text>"
