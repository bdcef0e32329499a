"""Every public name of the package has a docstring, which `./run docs` and help() print."""
import importlib
import inspect
import unittest

import hetu

MODULES = [name for name in hetu.__all__ if inspect.ismodule(getattr(hetu, name))]


def names_of(module):
    """Yields the public classes and functions that a module or package owns, and the methods of these classes. Event methods
    of hooks (on_...) are left out: their module describes them."""
    for name, value in vars(module).items():
        owner = getattr(value, "__module__", None) or ""
        ours = inspect.isclass(value) or inspect.isroutine(value)
        if name.startswith("_") or not owner.startswith(module.__name__) or not ours:
            continue
        yield f"{module.__name__}.{name}", value
        for method, inner in vars(value).items() if inspect.isclass(value) else ():
            if not method.startswith(("_", "on_")) and (inspect.isroutine(inner) or isinstance(inner, property)):
                yield f"{module.__name__}.{name}.{method}", getattr(value, method)  # inherits the docstring of a base class


class Docstrings(unittest.TestCase):
    def test_every_public_name_has_one(self):
        seen, bare = 0, []
        exported = [(f"hetu.{name}", getattr(hetu, name)) for name in hetu.__all__ if callable(getattr(hetu, name))]
        for name, value in [*exported, *(pair for module in MODULES for pair in names_of(importlib.import_module(
                getattr(hetu, module).__name__)))]:
            seen += 1
            if not inspect.getdoc(value):
                bare.append(name)
        self.assertGreater(seen, 250)
        self.assertEqual(bare, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
