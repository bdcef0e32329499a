"""Names the line to type in place of Chimera's Ray script for one host."""

import sys

sys.exit("prof_steps_ray.py: Hetu starts workers without Ray; type: sh scripts/prof_steps.sh")
