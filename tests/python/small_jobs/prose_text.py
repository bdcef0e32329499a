"""A small text for tests: the first documents of the text that `hetu data sample` reads. Reading all of it takes seconds."""
from itertools import islice

from hetu.sample.prose import documents


def write_prose(path, count, longest=59, **encoding):
    """Writes the first `count` documents of at most `longest` sentences: one sentence per line, a blank line between
    documents."""
    chosen = islice((document for document in documents() if len(document) <= longest), count)
    path.write_text("\n\n".join("\n".join(document) for document in chosen) + "\n", **{"encoding": "utf-8", **encoding})
