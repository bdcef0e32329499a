"""The names of torch_worker.py's cases that torch_test.py runs, and the code blocks of its page."""
import re
from pathlib import Path

SAMPLE = ["gpipe", "zb-h1", "tied", "bf16 zb-h1", "fp16 1f1b", "varuna 2 1", "save", "load"]
TWO = ["gpipe", "1f1b", "zb-h1", "zb-v", "interleaved", "chimera", "varuna", "recomputed", "zb-h1 recomputed",
       "norms", "norms recomputed", "skips", "skips zb-v", "told cuts", "tied", "tied zb-v", "tied chimera",
       "bf16 zb-h1", "bf16 varuna", "bf16 pipelines", "fp16 1f1b", "fp16 zb-v",
       "pipelines", "varuna 2 1", "varuna tied 2 1", "varuna pipelines 1 2", "save", "trace", "load"]
FOUR = ["1f1b", "zb-h1", "chimera", "cuts", "tied pipelines", "fp16 pipelines", "varuna 4 1", "varuna tied pipelines 2 2",
        "load"]
# In these the other side sums in the job's order, so that bits are equal although sums go over copies.
EXACT = ("bf16 pipelines", "fp16 pipelines")
SUMMED = ("chimera", "tied", "pipelines", "varuna 4")  # the last one has a skip that two stages read


def snippets():
    """Returns the Python code blocks of docs/pytorch.md."""
    page = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"
    found = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    assert found, "the page has no snippet"
    return found
