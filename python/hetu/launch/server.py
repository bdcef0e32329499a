"""A parameter server of the job as a process. It restores the state that it has kept in a folder for that job, if there is
one. On standard output it reports that it serves."""
import sys

from hetu.launch import service


def main(endpoint, listener, number, servers, *log):
    from hetu import _hetu

    place = int(number), int(servers)
    return service.serve(
        f"server {number}",
        lambda secret, workers: _hetu.serve_parameters(endpoint, (int(listener), 0, 1), secret, workers, place, log))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
