"""The names, flags and files of the systems that Hetu reproduces. See README.md."""
