"""For all tests: a shared machine stalls now and then, which is no fault of what is tested."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("forebay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("forebay")
