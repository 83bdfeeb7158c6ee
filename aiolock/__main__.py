"""The command line: `python -m aiolock`, or `aiolock` where the package is installed."""

import sys

from aiolock._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
