"""Parameter servers for your own programs: tables of float32 that several processes push to and pull from.

    hetu ps serve --listen tcp://127.0.0.1:* --keys job.keys &

    with hetu.ps.connect("job.keys", worker=0) as client:
        table = client.open("sums", np.zeros(1000, np.float32), members=2, member=0)
        table.push(np.ones(1000, np.float32))
        everyones = table.read(least=1)          # once each of the two has pushed once

It needs only the compiled module hetu._hetu and NumPy. Every push counts exactly once, whatever is lost on the network. A
client that ends without leave(), by an exception or a kill, counts as dead after 8 s: pulls that wait for it fail, and the
error names it.

Errors: ValueError (a wrong argument), hetu.ConfigError, a ValueError (file or keys), hetu.CommError, a ConnectionError (a
server is lost or refuses the key), TimeoutError. docs/parameter-server.md describes the servers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetu import _hetu

Floats: TypeAlias = npt.NDArray[np.float32]


def connect(where: str | os.PathLike[str], worker: int = 0, timeout: float | None = None) -> Client:
    """Connects to all servers of a job.

    where: the file of `hetu ps serve --keys`, or an address in the form of HETU_SERVERS.
    worker: this process's number in messages to people.
    timeout: seconds after which a waiting call raises TimeoutError. None: HETU_TIMEOUT, or 300.
    Raises OSError (the file can't be read), ConfigError (the file is invalid, or other users may read it), CommError (a
    server refuses the key), TimeoutError (a server does not answer).
    """
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be above 0 s, got {timeout:g}")
    return Client(_hetu.ParameterClient(os.fspath(where), worker, timeout or 0.0))


class Client:
    """A process's connections to all servers, created by connect(). Only one thread at a time may use it and its tables. As
    a context manager it leaves at the end, unless an exception is raised."""

    def __init__(self, client: _hetu.ParameterClient) -> None:
        self._client = client
        self._at_exit = weakref.finalize(self, client.abandon)

    def open(self, name: str, initial: npt.ArrayLike, *, members: int = 1, member: int = 0,
             optimizer: str | Mapping[str, Any] | None = None, rule: str = "each") -> Table:
        """Joins the table `name` as `member` of `members`, who must all open it with the same arguments. Waits until every
        server has its part.

        initial: float32 of any shape, which becomes the table's shape. The values of the first member to join are used, so
        all members should pass the same.
        optimizer: None: pushes are added. Otherwise pushes are gradients, and it is a kind such as "adam", or a dict of
        "kind" and its settings (docs/reference.md; no rate, no clip_norm).
        rule: "each": each push is an update. "mean", "sum": the k-th pushes of all members together are update k.
        Raises ValueError if members do not agree.
        """
        first = _floats(initial, "initial")
        if isinstance(optimizer, str):
            optimizer = {"kind": optimizer}
        settings = None if optimizer is None else dict(optimizer)
        number = self._client.open(name, first, members, member, settings, rule)
        return Table(self, number, name, first.shape, None if settings is None else str(settings["kind"]))

    def flush(self) -> None:
        """Waits until the servers have received every push."""
        self._client.flush()

    def leave(self) -> None:
        """Leaves in order, once the servers have received every push. Afterwards no member waits for this one, and no
        method may be called."""
        self._client.leave()
        self._at_exit.detach()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.leave()
        else:
            self._at_exit()


class Table:
    """A table that a client has opened, with its `name` and `shape`."""

    def __init__(self, client: Client, number: int, name: str, shape: tuple[int, ...], optimizer: str | None) -> None:
        self.name, self.shape = name, shape
        self._of, self._number, self._optimizer = client, number, optimizer
        self._into: Floats | None = None

    def push(self, update: npt.ArrayLike, rate: float | None = None) -> None:
        """Adds `update`, float32 of the table's shape. With an optimizer it is a gradient, and `rate` is its learning rate.
        It copies `update` and does not wait for the network. Increments this member's clock, which begins at 0."""
        if (rate is None) != (self._optimizer is None):
            raise ValueError(f"table {self.name!r} has {self._optimizer or 'no optimizer'}: push "
                             f"{'without' if self._optimizer is None else 'with'} a rate")
        self._of._client.push(self._number, _floats(update, "update", self.shape), rate)

    def pull(self, least: int | None = None, to_come: int = 0) -> None:
        """Requests the values as soon as the clock of every member is at least `least` (None: at once). The values include
        this client's pushes so far and its next `to_come` pushes. Only one request may be open; wait() returns its values.
        """
        if self._into is not None:
            raise ValueError(f"a pull of table {self.name!r} is open: wait() for it first")
        into = np.empty(self.shape, np.float32)
        self._of._client.pull(self._number, least, into, to_come)
        self._into = into

    def wait(self, what: str = "a pull") -> Floats:
        """Returns the values that pull() has requested: a new float32 array of the table's shape. Raises TimeoutError,
        which names `what` and the members that are waited for, and CommError if one of these has died."""
        if self._into is None:
            raise ValueError(f"no pull of table {self.name!r} is open: call pull() first")
        values, self._into = self._into, None
        self._of._client.wait(self._number, what)
        return values

    def read(self, least: int | None = None) -> Floats:
        """Returns the values by pull() and wait()."""
        self.pull(least)
        return self.wait()

    def states(self) -> tuple[Floats, dict[str, Floats], int]:
        """Returns the values, the optimizer's states by name (each of the table's shape), and the number of updates. Call
        it when no member pushes."""
        values = np.empty(self.shape, np.float32)
        states, updates = self._of._client.states(self._number, values)
        names = _hetu.optimizer_state_names(self._optimizer) if self._optimizer else []
        return values, {name: state.reshape(self.shape) for name, state in zip(names, states, strict=True)}, updates


def _floats(given: npt.ArrayLike, what: str, shape: tuple[int, ...] | None = None) -> Floats:
    array = np.asarray(given)
    if array.dtype != np.float32:
        raise ValueError(f"{what} must be float32, not {array.dtype}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{what} must have the table's shape {shape}, not {array.shape}")
    return np.ascontiguousarray(array).reshape(array.shape)
