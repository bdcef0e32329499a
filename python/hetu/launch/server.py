"""A parameter server of the job as a process: number NUMBER of so many."""
import sys

from hetu.launch import service


def main(endpoint, listener, number, servers):
    from hetu import _hetu

    return service.serve(
        f"server {number}",
        lambda secret, workers: _hetu.serve_parameters(endpoint, listener, secret, workers, 0, (number, servers)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
