"""What mpirun starts, as `python3 -I -S run_guard.py ADDRESS DIRECTORIES command...`: guard.py by its module's name, so that
Python keeps what it compiled of it; a worker of a short job starts a tenth sooner."""
import signal

HELD_BACK = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT}
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # first of all: until guard.main takes them they would be the end
    import gc
    gc.disable()  # what is imported stays
    import os
    import sys
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))  # -I leaves it out
    from hetu.launch import guard
    gc.enable()
    os._exit(guard.main(sys.argv[1:], HELD_BACK))  # it holds nothing that has to be taken apart
