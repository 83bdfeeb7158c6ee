"""
Refuses the import if an unrelated package, which is called aiolock on package indexes, is installed in the same folder.

The other package has two modules, ``__init__`` and ``redis``. The later installation of the two provides ``__init__``;
``redis`` exists in any case. Each public module imports this one first, because ``__init__`` may be the other one.
"""

import os.path

_FOLDER = os.path.dirname(__file__)

if os.path.exists(os.path.join(_FOLDER, "redis.py")):
    raise ImportError(
        f"{_FOLDER} has files of two packages: of aiolock-redis, which is this library, and of an unrelated package "
        "called aiolock, whose file is redis.py. Uninstall both of them, then install aiolock-redis again.",
        name="aiolock",
        path=_FOLDER,
    )
