"""The plugin's fixtures, as a user gets them by installing Detent."""

from detent.testing.pytest_plugin import detent_crashes, detent_effects

__all__ = ["detent_crashes", "detent_effects"]
