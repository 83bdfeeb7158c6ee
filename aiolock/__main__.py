"""The command line: `python -m aiolock`, or `aiolock` where the package is installed."""

import sys

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
