"""`python3 -m hetu.varuna.run_varuna`: Varuna's launcher (hetu.compat.varuna.run_varuna)."""

import sys

from hetu.compat.varuna.run_varuna import main

if __name__ == "__main__":
    sys.exit(main())
