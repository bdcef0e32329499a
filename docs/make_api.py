#!/usr/bin/env python3
"""Writes the Python interface as pages, from the docstrings of this build: `./run docs`.

usage: make_api.py FOLDER"""

import sys
import warnings
from pathlib import Path

import pdoc

import hetu

# Modules for users, including submodules. Modules that only heturun and the bindings import are left out.
MODULES = ["hetu", "!hetu.launch", "!hetu.process", "!hetu.sample", "!hetu.hold", "!hetu.training", "hetu.job.training",
           "!hetu.hooks", "hetu.job.hooks"]


def main(folder: str) -> None:
    for name in hetu.__all__:  # hetu loads them at their first use, which pdoc doesn't trigger
        setattr(hetu, name, getattr(hetu, name))
    warnings.filterwarnings("error", "Found '")  # a name without a page
    warnings.filterwarnings("ignore", "Found '(training|hooks)'")  # these are in hetu.job
    pdoc.render.configure(show_source=False, docformat="restructuredtext", footer_text="Hetu, from its docstrings")
    pdoc.pdoc(*MODULES, output_directory=Path(folder))
    print(f"{folder}/hetu.html")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
