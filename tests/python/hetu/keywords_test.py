"""Keywords of other libraries. Every known spelling maps to a keyword that some function takes. Every public function and
class names the right keyword in one line."""

import inspect
import unittest

import hetu as ht
from hetu import keywords, metrics, predictor, text, weights

MODULES = {"hetu.optim": ht.optim, "hetu.lr": ht.lr, "hetu.nn": ht.nn, "hetu.init": ht.init, "hetu.data": ht.data,
           "hetu.models": ht.models, "hetu.text": text, "hetu.metrics": metrics, "hetu.hooks": ht.hooks,
           "hetu.predictor": predictor, "hetu.weights": weights}
# classes of users derive from Module; Identity takes any argument, as PyTorch's does
LEFT_OUT = {"hetu.nn.Module", "hetu.nn.Identity"}


def public():
    """Yields names and objects of all functions and classes that users call."""
    for called, module in MODULES.items():
        names = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in names:
            value = getattr(module, name)
            if name[:1] != "_" and callable(value) and f"{called}.{name}" not in LEFT_OUT:
                yield f"{called}.{name}", value
    for name in ("run", "evaluate", "predict", "save", "weights"):
        yield f"hetu.Executor.{name}", getattr(ht.Executor, name)


def taken(value):
    """Returns the keywords that a function takes, or None if it takes any."""
    parameters = inspect.signature(value).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters]


class Keywords(unittest.TestCase):
    def test_every_spelling_comes_to_a_keyword_that_is_there(self):
        known = {name for _, value in public() for name in taken(value) or ()}
        known |= set(inspect.signature(ht.Executor).parameters)
        for method in vars(ht.Value.__mro__[1]).values():  # methods of values
            known |= set(taken(method) or ()) if inspect.isfunction(method) else set()
        known |= {name for function in (ht.concat, ht.one_hot, ht.step_mean, ht.group_norm) for name in taken(function)}
        for theirs, ours in keywords.SPELLINGS.items():
            self.assertTrue(set(ours) & known, f"{theirs}: none of {ours} is a keyword")
            self.assertNotIn(theirs, ours)

    def test_every_public_function_names_what_is_right(self):
        count = 0
        for called, value in public():
            names = taken(value)
            if names is None or (inspect.isclass(value) and value.__init__ is object.__init__):
                continue
            with self.subTest(called), self.assertRaisesRegex(TypeError, r"^keywords_test\.py:\d+: \S+ takes no keyword "
                                                                          "'no_such_keyword'; "):
                value(no_such_keyword=1)
            count += 1
        self.assertGreater(count, 60)


if __name__ == "__main__":
    unittest.main()
