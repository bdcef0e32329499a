"""Hetu: pipeline-parallel training. The compiled part is hetu._hetu."""
import os
import pkgutil

# In a source tree the compiled module stands in the build folder: found through PYTHONPATH, else beside the sources.
__path__ = pkgutil.extend_path(__path__, __name__)
__path__.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "build", "python", "hetu"))
