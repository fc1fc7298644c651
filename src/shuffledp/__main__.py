"""``python -m shuffledp`` and the ``shuffledp`` command: signals are handled before anything large is imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line.

    A server that is asked to stop exits with status 0, even before it listens: until then it has nothing to clean up.
    """
    arguments = sys.argv[1:]
    if arguments[:2] in (["serve", "shuffler"], ["serve", "analyzer"]) and "--check" not in arguments:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        from shuffledp.cli.main import main as run
    except KeyboardInterrupt:
        os.write(2, b"error: interrupted; nothing was done.\n")
        os._exit(130)
    run()


if __name__ == "__main__":
    main()
