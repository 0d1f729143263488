"""How long the laws are tested: a fixed number of examples by default, many random ones in the profile `deep`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=2000, derandomize=False,
                          suppress_health_check=_SLOW)


def law(examples: int) -> Callable[[Any], Any]:
    """Settings of one law: the same examples each time; under the profile `deep`, as many as that says, new ones."""
    if settings._current_profile == "deep":
        return settings(suppress_health_check=_SLOW)
    return settings(max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW)
