"""The common part of the tests of failures."""

from tests.support.half_open import half_open_connections

__all__ = ["half_open_connections"]
