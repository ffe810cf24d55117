"""What became of letters is forgotten when it is old and nobody can meet the letter again.

A settled letter must not come back as a new one. It would, as long as a letter of the record is in its place, or the record
itself is in its topic: a view that is made later reads it again and writes its letter again. So both must be gone.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from urllib.parse import quote

from forebay.deadletter.identity import Identity
from forebay.deadletter.letterbox import Letterbox
from forebay.deadletter.outcomes import Outcomes
from forebay.deadletter.owners import Owner
from forebay.errors import ForebayError
from forebay.kafka.admin import Cluster
from forebay.options import Options
from forebay.retention import DAY_MS, retention_ms

log = logging.getLogger("forebay.deadletter")


def forget_gone(owner: Owner, outcomes: Outcomes, folder: Path) -> int:
    """Once a day, after something was done with an owner's letters: how many were forgotten.

    Nothing fails for it. Whoever calls it is the only one who changes what becomes of these letters now.
    """
    looked = folder / f"{quote(owner.key, safe='@')}.looked"
    if looked.exists() and time.time() - looked.stat().st_mtime < DAY_MS / 1000:
        return 0
    try:
        before = int(time.time() * 1000) - retention_ms("letter_retention_days")
        old = outcomes.settled_before(owner.key, before)
        gone = _without_letter(_without_record(old, owner.options), owner) if old else set()
    except ForebayError as error:
        log.warning("what became of letters of '%s' is kept, also what is old: %s", owner.name, error.message)
        return 0
    looked.touch(0o600)
    if gone:
        outcomes.forget(owner.key, gone)
        log.info("event=letters_forgotten source=%s count=%d", owner.name, len(gone))
    return len(gone)


def _without_record(letters: set[Identity], options: Options) -> set[Identity]:
    """Those whose record is not in its topic any more."""
    cluster = Cluster(options)
    try:
        topics = cluster.existing({each.topic for each in letters})
        partitions = [(topic.name, number) for topic in topics.values() for number in range(topic.partitions)]
        starts = cluster.earliest(partitions)
    finally:
        cluster.close()

    def is_gone(each: Identity) -> bool:
        topic = topics.get(each.topic)
        if topic is None or each.topic_id not in ("", topic.id):
            return True
        return each.offset < starts.get((each.topic, each.partition), 0)

    return {each for each in letters if is_gone(each)}


def _without_letter(letters: set[Identity], owner: Owner) -> set[Identity]:
    """Those that no letter is about. Whether it knows its topic's id or not, one at their place keeps them."""
    if not letters:
        return letters
    wanted = {each[:3] for each in letters}
    for letter in Letterbox(owner.place, owner.options).letters():
        wanted.discard(letter.identity[:3])
    return {each for each in letters if each[:3] in wanted}
