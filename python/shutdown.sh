#!/bin/sh
# Ends the jobs that heturun has started from this folder, as Chimera's script of this name ends a run. Jobs that have a
# checkpoint folder save first. With --now, no job saves.
exec python3 -m hetu.compat.shutdown "$@"
