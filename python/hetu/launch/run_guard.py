"""The program that mpirun starts, as `python3 -I -S run_guard.py ADDRESS DIRECTORIES command...`. It imports guard.py as a
module, so that Python caches the compiled code; a worker of a short job starts a tenth sooner."""
import signal

HELD_BACK = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT}
if __name__ == "__main__":
    # Before anything else: until guard.main handles these signals, they would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    import gc
    gc.disable()  # imported objects stay alive
    import os
    import sys
    # -I leaves the package out
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    from hetu.launch import guard
    gc.enable()
    os._exit(guard.main(sys.argv[1:], HELD_BACK))  # skips destructors; nothing needs them
