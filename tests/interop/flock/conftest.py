"""Run by `make test-flock`, in an environment of its own: Flock needs Python 3.12, and is no dependency."""

from __future__ import annotations

import os

# Where there is no Flock, these are no tests: `make test` does not collect them.
collect_ignore_glob = [] if os.environ.get("FOREBAY_FLOCK") else ["test_*.py"]
