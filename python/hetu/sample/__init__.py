"""Sample data that is made on this machine, for `hetu data sample`: `python3 -m hetu.sample`."""
