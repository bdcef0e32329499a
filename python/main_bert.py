#!/usr/bin/env python3
"""Chimera's and PipeFisher's main_bert.py, on the trainer of train_bert.py: hetu/compat/main_bert.py."""

import sys

import train_bert
from hetu.compat import main_bert

if __name__ == "__main__":
    sys.exit(main_bert.main(train_bert))
