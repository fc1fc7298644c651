"""The child process of ``in_fresh_process``: call one function, then print its result and the peak memory."""

from __future__ import annotations

import json
import resource
import sys
from importlib import import_module
from pathlib import Path


def peak_bytes() -> int:
    """The peak physical memory of this process.

    Linux's ru_maxrss starts at what the parent held when it started this process, so the kernel's
    own mark of this address space is read where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _main(module: str, function: str, arguments: str) -> None:
    returned = getattr(import_module(module), function)(*json.loads(arguments))
    print(json.dumps({"returned": returned, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
