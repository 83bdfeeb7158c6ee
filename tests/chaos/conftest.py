"""The fixtures that the tests of failures share."""

from tests.support.half_open import half_open_connections

__all__ = ["half_open_connections"]
