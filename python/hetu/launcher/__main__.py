"""`python3 -m hetu.launcher FILE -n N [--sched]`: parameter servers by SD-PIPE's file (hetu.compat.launcher)."""

import sys

from hetu.compat.launcher import main

if __name__ == "__main__":
    sys.exit(main())
