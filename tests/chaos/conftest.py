"""What the tests of failures have in common."""

from tests.support.half_open import half_open_connections

__all__ = ["half_open_connections"]
