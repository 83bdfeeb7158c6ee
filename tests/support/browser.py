"""A real browser without a window: a page as it is after its scripts and styles have run."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

_WITHIN = 40.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)


async def dom_of(url: str, *, width: int = 1000) -> str:
    """The document at *url* in a window of that *width*."""
    return (await _chromium(url, "--dump-dom", f"--window-size={width},600")).decode()


async def picture_of(url: str, path: Path) -> bytes:
    """The picture of *url*, a PNG, written to *path*."""
    await _chromium(url, f"--screenshot={path}", "--window-size=1000,600")
    return path.read_bytes()


async def _chromium(url: str, *what: str) -> bytes:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on the path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program, *_FLAGS, f"--user-data-dir={home}", *what, url, stdout=pipe, stderr=pipe
        )
        try:
            out, errors = await asyncio.wait_for(process.communicate(), _WITHIN)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode(errors="replace")
    return out
