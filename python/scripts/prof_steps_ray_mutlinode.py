"""Names the line to type in place of Chimera's Ray script for several hosts."""

import sys

sys.exit("prof_steps_ray_mutlinode.py: Hetu starts workers without Ray; type: "
         "cluster=config/w0_w1.yml ngpus=16 sh scripts/prof_steps.sh")
