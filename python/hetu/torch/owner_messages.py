"""Messages that carry weights from their owners to the other copies. Small parameters share a message; a large parameter
has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hetu.torch.device import StageDevice

MESSAGE_BYTES = 8 << 20


@dataclass
class Copied:
    """A parameter with several copies."""

    name: str  # name of the first copy, if two stages share the parameter
    number: int  # number in the order of the model
    workers: tuple[int, ...]  # the workers that hold a copy, ascending
    held: list[torch.nn.Parameter]  # the copies on this worker; the owner updates the first one
    owner: int | None = None


def messages(copied: Sequence[Copied]) -> Iterator[list[Copied]]:
    """Groups parameters of one owner and dtype into messages. A large parameter has a message of its own."""
    open_messages: dict[Any, tuple[list[Copied], int]] = {}
    for one in copied:
        size = one.held[0].numel() * one.held[0].element_size()
        if size >= MESSAGE_BYTES // 4:
            yield [one]
            continue
        key = one.owner, one.held[0].dtype  # one dtype per message, so that all parts are aligned
        part, filled = open_messages.get(key, ([], 0))
        part.append(one)
        open_messages[key] = part, filled + size
        if filled + size >= MESSAGE_BYTES:
            del open_messages[key]
            yield part
    yield from (part for part, _ in open_messages.values())


class Message:
    """Parameters of one owner in host memory. It uses the memory of the parameter itself if possible, and a copy otherwise.
    """

    def __init__(self, copied: Sequence[Copied], worker: int, device: StageDevice) -> None:
        self.parameters = [one.held[0] for one in copied]
        assert copied[0].owner is not None
        self.owner, self.worker, self.device = copied[0].owner, worker, device
        first = self.parameters[0]
        self.is_copy = len(copied) > 1 or not device.is_host or not first.is_contiguous()
        if not self.is_copy:
            self.memory = _bytes_of(first)
        elif self.owner == worker:
            self.memory = device.to_host(torch.cat([_bytes_of(parameter) for parameter in self.parameters]))
        else:
            size = sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)
            self.memory = torch.empty(size, dtype=torch.uint8)

    def end(self) -> None:
        """Copies a received message into the parameters."""
        if not self.is_copy or self.owner == self.worker:
            return
        memory, at = self.device.from_host(self.memory), 0
        with torch.no_grad():
            for parameter in self.parameters:
                size = parameter.numel() * parameter.element_size()
                parameter.copy_(memory[at:at + size].view(parameter.dtype).view(parameter.shape))
                at += size


def _bytes_of(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().reshape(-1).view(torch.uint8)
