"""Blocks SIGUSR1 on import, until `ht.one_line_errors` can handle it. A script that may receive the signal in its first
moments imports this module before slow imports. It is not needed under heturun."""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
