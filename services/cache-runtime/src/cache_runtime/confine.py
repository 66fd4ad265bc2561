"""Run a program in a root directory of its own: `confine.py ROOT PROGRAM ARGUMENT...`.

The program itself is outside: it is opened first, and executed by its descriptor. It must be linked
statically.
Only the standard library, and no import of this package: it is started for every copy.
"""

import os
import sys


def main(root: str, program: str, *arguments: str) -> None:
    """Replaces this process. Raises OSError."""
    handle = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
    os.chroot(root)
    os.chdir("/")
    os.execve(handle, (program, *arguments), os.environ)  # noqa: S606 - that is its purpose


if __name__ == "__main__":
    main(*sys.argv[1:])
