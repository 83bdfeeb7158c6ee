"""The services of the recipes, each one file of a page, run by uvicorn as it stands there."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.asgi import WebProcess, uvicorn_command

SOON = 30.0


@contextmanager
def serving(
    directory: Path, code: str, *options: str, ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[WebProcess]:
    """Serve the application ``app`` in *code*, by uvicorn."""
    (directory / "service.py").write_text(code, "utf-8")
    command = uvicorn_command("service:app", "--app-dir", str(directory), *options)
    with WebProcess(command, directory / "log", ready=ready, environment=dict(environment or {})) as running:
        yield running


async def statuses(client: httpx.AsyncClient, *paths: str) -> list[int]:
    """Post to all of them at once."""
    return [answer.status_code for answer in await asyncio.gather(*(client.post(path) for path in paths))]
