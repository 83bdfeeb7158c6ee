"""The scripts are read when a client is made: an import for errors and types alone pays for no Lua."""

import subprocess
import sys

READ = """
import sys

read = []


def note(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".lua"):
        read.append(arguments[0])


sys.addaudithook(note)
import aiolock
from aiolock import LockTimeoutError
imported = len(read)
locks = aiolock.LockClient.from_url("redis://localhost")
made = len(read)
for script in aiolock._scripts._ALL:
    assert script.sha
print(imported, made > 0, len(read) == made == len(set(read)))
"""


def test_importing_reads_none_and_a_client_reads_all_of_them_once() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert done.stdout == "0 True True\n"
