"""The job's coordinator of groups as a process. On standard output it reports the pipelines that it gives up, with the
reasons."""
import sys

from hetu.launch import service


def main(endpoint, listener):
    from hetu import _hetu

    return service.serve("coordinator",
                         lambda secret, workers: _hetu.serve_coordinator(endpoint, listener, secret, workers, 0, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
