#!/usr/bin/env python3
"""PipeFisher's main_bert_simple.py, on the trainer of train_bert.py: hetu/compat/main_bert_simple.py."""

import sys

import train_bert
from hetu.compat import main_bert_simple

if __name__ == "__main__":
    sys.exit(main_bert_simple.main(train_bert))
