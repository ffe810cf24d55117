"""Bytes of a record for `bytes.js`: what is at fault marked, the rest plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.deadletter.desk_views import EditForm, HexLine, Payload
from forebay.web.pages import parts, words


def text_parts(text: str, span: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Text with the characters at fault marked. An empty span is a place where something is missing."""
    if span is None:
        return [{"text": text}]
    begin, end = max(0, span[0]), max(span[0], min(span[1], len(text)))
    bad = text[begin:end] or "▮"
    return [
        {"text": text[:begin]},
        {"text": bad, "bad": True, "why": "decoding fails here"},
        {"text": text[end:]},
    ]


def hex_parts(lines: Sequence[HexLine]) -> list[dict[str, Any]]:
    """A dump: place, sixteen bytes, and what of them is text."""
    made: list[dict[str, Any]] = []
    for line in lines:
        made.append({"text": f"{line.at:08x}  ", "dim": True})
        digits = line.hex.replace(" ", "")
        pairs = [digits[place : place + 2] for place in range(0, len(digits), 2)]
        for place, pair in enumerate(pairs):
            made.append({"text": pair, "bad": True} if place in line.marked else {"text": pair})
            made.append({"text": "  " if place == 7 else " "})
        made.append({"text": "   " * (16 - len(pairs)) + (" " if len(pairs) < 8 else "") + " "})
        for place, character in enumerate(line.text):
            made.append(
                {"text": character, "bad": True} if place in line.marked else {"text": character, "dim": True}
            )
        made.append({"text": "\n"})
    return made


def show_text(name: str, payload: Payload | None) -> None:
    """A key or value as text, or why there is none."""
    if payload is None:
        parts.text(f"The record has no {name.lower()}.", "muted")
        return
    if payload.text is not None:
        parts.Bytes(name, text_parts(payload.text, payload.text_span))
    elif payload.decoded is not None:
        parts.Bytes(f"{name}, decoded", text_parts(payload.decoded, payload.text_span))
    if payload.note:
        parts.text(payload.note, "muted small")
    if payload.text is None and payload.decoded is None and not payload.note:
        parts.text("These bytes are no text: the dump shows them.", "muted small")


def show_hex(name: str, payload: Payload | None) -> None:
    """A dump of a key or value."""
    if payload is None or not payload.hex:
        said = "it is masked or hidden" if payload is not None and payload.size else "it is empty"
        parts.text(f"No dump of the {name.lower()}: {said}.", "muted")
        return
    parts.Bytes(f"{name} in hexadecimal", hex_parts(payload.hex), hex=True)
    if payload.hidden:
        parts.text(f"{words.many(payload.hidden, 'byte')} more are not shown.", "muted small")


def edits(payload: Payload) -> dict[EditForm, str]:
    """What an edit begins with, in each form that a value can be written in."""
    made: dict[EditForm, str] = {}
    if payload.form == "json":
        made["json"] = payload.decoded or ""
    elif payload.text is not None:
        made["text"] = payload.text
    if payload.form != "text":
        whole = payload.hidden == 0
        made["hex"] = "\n".join(line.hex for line in payload.hex) if whole else ""
    return made
