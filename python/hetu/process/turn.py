"""A call of all workers of a job whose workers are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hetu import _hetu

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

PATIENCE_S = 1.0  # wait for an error that all workers raise, before one worker ends the links


class Turn:
    """Runs the other workers' parts of a call in their threads, while the first worker runs its part in this thread.

    links: the transport of each worker.
    pools: a pool of one thread for each worker except the first, like `works`.
    """

    def __init__(self, links: Sequence[Any], pools: Sequence[Executor], works: Sequence[Callable[[], Any]]) -> None:
        self.first = links[0]
        self.over = threading.Event()  # set when the first worker has finished or failed
        self.others = [pool.submit(self._watched, transport, work)
                       for transport, pool, work in zip(links[1:], pools, works, strict=True)]

    def _watched(self, transport: Any, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            if not self.over.wait(PATIENCE_S):
                transport.give_up(str(error))
            raise

    def take(self, work: Callable[[], Any]) -> Any:
        """Runs the first worker's part, or a piece of it. If a worker fails, throws the first error that names a cause.
        Workers that wait for a failed one are informed after a moment."""
        try:
            return work()
        except BaseException as error:
            self.over.set()
            if not all(map(_is_done, self.others)):
                self.first.give_up(str(error))
            self._raise(error)

    def end(self, work: Callable[[], Any] = lambda: None) -> Any:
        """Runs `work` like take(), and waits for the other workers."""
        result = self.take(work)
        self._raise(None)
        return result

    def _raise(self, own: BaseException | None) -> None:
        self.over.set()
        failed = [error for error in (own, *(one.exception() for one in self.others)) if error is not None]
        if failed:
            raise next((e for e in failed if not isinstance(e, (_hetu.CommError, TimeoutError))), failed[0])


def _is_done(one: Future[Any]) -> bool:
    try:
        one.exception(PATIENCE_S)
    except TimeoutError:
        return False
    return True
