"""For all tests: a shared machine stalls now and then, which is no fault of what is tested."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("forebay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("forebay")

# A test's Spark lives for seconds: a compiler that takes half a minute to pay only takes cores from others.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
