"""Importing this holds SIGUSR1 back until `ht.one_line_errors` can obey it. A script that may get one in its first moments
imports it before what takes long; under heturun nobody needs it."""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
