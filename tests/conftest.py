"""For all tests: a shared machine stalls now and then, which is no fault of what is tested."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# `make chaos` asks for more examples of each property.
EXAMPLES = int(os.environ.get("FOREBAY_EXAMPLES", "100"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("forebay", deadline=None, suppress_health_check=SLOW, max_examples=EXAMPLES)
settings.load_profile("forebay")

# A test's Spark or broker lives for seconds: a compiler that takes half a minute to pay only takes cores from others.
for name in ("SPARK_SUBMIT_OPTS", "KAFKA_OPTS"):
    os.environ.setdefault(name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
