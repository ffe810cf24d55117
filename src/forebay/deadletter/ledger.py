"""What the rate limit kept out: stretches of the log in which bad records have no letter.

A stretch is not a list: between its first and its last bad record there may be good ones, and bad ones
that have a letter. Whoever recovers it reads it again, decodes it again, and leaves those out. So a
topic full of bad records takes one line here and not one a record.
"""

from __future__ import annotations

from collections.abc import Iterable

from forebay.connectors.contract import Stretch

NEAR = 1000  # bad records no further apart are in one stretch; reading so many good ones again is cheap


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Those that lie near each other as one. Same records, same counts, ordered by place."""
    found: list[Stretch] = []
    for each in sorted(stretches, key=lambda part: (_log(part), part)):
        last = found[-1] if found else None
        if last and _log(last) == _log(each) and each.start - last.end < NEAR:
            found[-1] = last._replace(end=max(last.end, each.end), bad=last.bad + each.bad)
        else:
            found.append(each)
    return found


def _log(part: Stretch) -> tuple[str, str, int]:
    return part.topic, part.topic_id, part.partition
