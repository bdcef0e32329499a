"""Sample data generated on this machine, for `hetu data sample`: `python3 -m hetu.sample`."""
