"""How many examples a property tries: few by default, many with a hypothesis profile.

pytest --hypothesis-profile=thorough tests/unit/operators
"""

from hypothesis import HealthCheck, settings


def examples(few: int) -> settings:
    """Settings for a property that tries `few` examples under the default profile."""
    count = max(1, few * settings().max_examples // 100)
    slow = [
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ]
    return settings(max_examples=count, deadline=None, suppress_health_check=slow)
