"""Advice about failures."""

from redis.asyncio.connection import AbstractConnection

from aiolock._redis.hints import hint_of, hint_on_opening

PERMISSIONS = "The page One server of the documentation lists the permissions that a user needs."
REACHING = "See that the server runs, and that the URL leads to it."


def on_opening(error: Exception, connection: AbstractConnection) -> str:
    """Advice about an *error* on opening *connection*."""
    return _sentence(hint_of(error) or hint_on_opening(error, connection)) or REACHING


def on_refusal(error: Exception) -> str:
    """Advice about an error reply of the server."""
    words = str(error).lower()
    if "read only replica" in words:
        return "Use the address of its primary."
    if "permission" in words or "user executing the script" in words:
        return PERMISSIONS
    return _sentence(hint_of(error)) or "See what the server says."


def _sentence(hint: str | None) -> str:
    return f"{hint[0].upper()}{hint[1:]}." if hint else ""
