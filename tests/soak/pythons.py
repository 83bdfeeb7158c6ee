"""An environment for each Python that workers run on."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NEEDED = "import anyio, hiredis, redis, uvloop"
_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def with_environment(python: str) -> str:
    """*python* itself if it has what workers need, else that of an environment of its own, made if there is none."""
    if _runs(python, _NEEDED):
        return python
    if not _runs(python, ""):
        raise SystemExit(f"{python} does not run; give the path of a Python")
    version = subprocess.run([python, "-c", _VERSION], check=True, capture_output=True, text=True).stdout.strip()
    folder = ROOT / f".venv-soak-{version}"
    own = str(folder / "bin" / "python")
    if not _runs(own, _NEEDED):
        print(f"making {folder.name}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", folder], check=True)
        install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", ROOT, "uvloop"], check=True)
    return own


def _runs(python: str, code: str) -> bool:
    try:
        return subprocess.run([python, "-c", code], capture_output=True, cwd=ROOT, check=False).returncode == 0
    except FileNotFoundError:
        return False
