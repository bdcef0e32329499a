"""Parameters and buffers of stages that another worker holds.

The script's model keeps all of its modules on every worker, but a worker has the values of its own stages only. A tensor of
another stage becomes an AbsentParameter or AbsentBuffer: a shape, a dtype and a requires_grad flag. Lines of an existing
loop that read such a tensor, such as clip_grad_norm_(model.parameters()), would be wrong without an error. So every
operation that needs values or a gradient throws an error that names the line to write instead.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

# Operations that need no values: what a script reads or sets on all workers alike.
_ALLOWED = frozenset("""
    shape size dim ndim ndimension numel nelement dtype device layout requires_grad requires_grad_ is_meta is_leaf
    stride storage_offset element_size itemsize nbytes is_floating_point is_complex is_contiguous is_cuda is_cpu
    is_sparse is_quantized is_nested is_inference grad_fn names retains_grad output_nr _version _backward_hooks
    _post_accumulate_grad_hooks register_hook register_post_accumulate_grad_hook __len__ __hash__ get_device
""".split())

# The first attribute that a function reads, where its later errors would be less clear.
_FIRST_READERS = {"is_leaf": ("add_param_group",), "is_meta": ("_load_from_state_dict",)}

# Advice by the name of a function of PyTorch, or of a library, that has read the tensor: what to write instead.
_INSTEAD = {
    "clip_grad_norm_": "call pipe.clip_grad_norm_(max_norm) on all workers",
    "clip_grad_norm": "call pipe.clip_grad_norm_(max_norm) on all workers",
    "get_total_norm": "call pipe.grad_norm() on all workers",
    "clip_grad_value_": "call pipe.clip_grad_value_(clip_value) on all workers",
    "load_state_dict": "call pipe.load_state_dict(state) on all workers",
    "state_dict": "call pipe.state_dict() on all workers, and save its result on one; or call pipe.save(folder, optimizer)",
    "add_param_group": "give the optimizer pipe.parameters(), or groups of pipe.named_parameters()",
    "step": "give the optimizer pipe.parameters(), or groups of pipe.named_parameters()",
    "_apply": "call to(), half() and the like before you make the Pipeline; Pipeline(device=) sets the device",
    "__deepcopy__": "average with hetu.torch.AveragedModel(pipe), or copy the result of pipe.state_dict()",
    "__reduce_ex__": "save the result of pipe.state_dict(), or call pipe.save(folder, optimizer)",
    "_call_impl": "call pipe.predict(inputs) or pipe.evaluate(inputs, target) on all workers",
}
_OTHERWISE = ("read pipe.parameters() or pipe.named_parameters(), which are this worker's, or pipe.state_dict(), which is "
              "the whole model's")


def _operation(function: Any) -> tuple[str, str]:
    """Returns the name of an operation, and "get" or "set" for an attribute."""
    name = getattr(function, "__name__", str(function))
    if name in ("__get__", "__set__", "__delete__"):
        return str(getattr(function.__self__, "__name__", name)), name.strip("_")
    return name, ""


def _what_to_write() -> str:
    """Returns the advice for the innermost known function among the callers."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_name
        if name in _INSTEAD and (name != "step" or "optim" in frame.f_globals.get("__name__", "")):
            return _INSTEAD[name]
        frame = frame.f_back
    return _OTHERWISE


class AbsentBuffer(torch.Tensor):
    """A buffer of a stage that another worker holds."""

    absent_name: str  # in the model

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, access = _operation(function)
        reader = sys._getframe(1).f_code.co_name
        # zero_grad() reads a gradient to find that there is none, and step() replaces gradients in any case.
        if name == "grad" and access == "get" and reader == "zero_grad":
            return None
        is_allowed = name in _ALLOWED or (name == "grad" and access != "get")
        if is_allowed and reader not in _FIRST_READERS.get(name, ()):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        first = next((one for one in _flat([args, kwargs]) if isinstance(one, AbsentBuffer)), None)
        raise ValueError(f"'{getattr(first, 'absent_name', '?')}' is on another worker, so this worker has neither its "
                         f"values nor its gradient ({name}): {_what_to_write()}")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{type(self).__name__}('{getattr(self, 'absent_name', '?')}', shape={list(self.shape)}, dtype={self.dtype})"

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone()  # throws

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.clone()  # throws


class AbsentParameter(AbsentBuffer, nn.Parameter):
    """A parameter of a stage that another worker holds."""


def _flat(values: Any) -> list[Any]:
    """Returns the leaves of lists, tuples and dicts."""
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, (list, tuple)):
        return [values]
    return [leaf for value in values for leaf in _flat(value)]


def absent(parameter: nn.Parameter, name: str) -> nn.Parameter:
    """Frees the memory of a parameter and its gradient. Returns the AbsentParameter to put in its place. It is the same
    object where PyTorch allows that, so that an optimizer or a list that already has the parameter can't use it either."""
    if isinstance(parameter, AbsentParameter):
        return parameter
    like = nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)
    try:
        torch.utils.swap_tensors(parameter, like)
        like = parameter
    except RuntimeError:  # a weak reference, or a graph that still refers to it
        pass
    like.__class__ = AbsentParameter
    like.absent_name = name  # type: ignore[attr-defined]
    return like


def absent_buffer(buffer: torch.Tensor, name: str) -> torch.Tensor:
    """Returns an AbsentBuffer of the same shape and dtype."""
    if isinstance(buffer, AbsentBuffer):
        return buffer
    like = torch.empty_like(buffer, device="meta").as_subclass(AbsentBuffer)
    like.absent_name = name  # type: ignore[attr-defined]
    return like
