#!/usr/bin/env python3
"""The Python interface as pages, from the docstrings of this build: `./run docs`.

usage: make_api.py FOLDER
"""

import sys
import warnings
from pathlib import Path

import pdoc

import hetu

# What users name. Their submodules follow; what only heturun and the bindings import is left out.
MODULES = ["hetu", "!hetu.launch", "!hetu.process", "!hetu.sample", "!hetu.hold", "!hetu.training", "hetu.job.training",
           "!hetu.hooks", "hetu.job.hooks"]


def main(folder: str) -> None:
    for name in hetu.__all__:  # hetu loads them when they are first asked for, which pdoc does not do
        setattr(hetu, name, getattr(hetu, name))
    warnings.filterwarnings("error", "Found '")  # a name without a page
    warnings.filterwarnings("ignore", "Found '(training|hooks)'")  # they stand in hetu.job
    pdoc.render.configure(show_source=False, docformat="restructuredtext", footer_text="Hetu, from its docstrings")
    pdoc.pdoc(*MODULES, output_directory=Path(folder))
    print(f"{folder}/hetu.html")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
