"""How long a session takes to start that has views already, in a process of its own.

python -m benchmarks.peers.forebay_starts prepare|start HOME SERVERS TOPIC VIEWS
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.peers.forebay_views import ForebayViews
from benchmarks.peers.session import Opening

TIMEOUT_S = 600.0


def main() -> None:
    what, home, servers, topic, views = sys.argv[1:]
    began = time.monotonic()
    worker = ForebayViews(Opening(servers, home))
    try:
        if what == "prepare":
            worker.start(topic, int(views))
        else:
            worker.db.start_all()
        running_s = time.monotonic() - began
        worker.db.wait(until_caught_up=True, timeout=TIMEOUT_S)
        caught_up_s = time.monotonic() - began
    finally:
        worker.close()
    print(json.dumps({"running_s": running_s, "caught_up_s": caught_up_s}))


if __name__ == "__main__":
    main()
