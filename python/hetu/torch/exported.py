"""Pieces of a program that PyTorch has traced: a torch.export.ExportedProgram, or a Pipe of torch.distributed.pipelining."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch
from torch import fx, nn
from torch.distributed.pipelining import Pipe
from torch.export import ExportedProgram

from hetu.names import near
from hetu.torch.cuts import MORE_IN_AT, PiecewiseModel
from hetu.torch.recorded import Recording, pieces_of
from hetu.torch.recording import WHOLE, Call, FixedShapesError, FormKey, Program, RecordingError, Slot
from hetu.torch.values import TensorSpec, flatten, unflatten


def split_exported(program: ExportedProgram, at: Sequence[str]) -> PiecewiseModel:
    """Returns the pieces of an exported program. A piece begins before the first operator of each module in `at`. Modules
    and parameters have their names in the exported model."""
    module = program.module()
    assert isinstance(module, fx.GraphModule)
    args: Any
    args, kwargs = program.example_inputs or ((), {})
    example: Any = dict(kwargs) if kwargs and not args else args[0] if len(args) == 1 and not kwargs else tuple(args)
    if args and kwargs:
        example = dict(zip(_names(module.graph), [*flatten(args)[0], *flatten(kwargs)[0]], strict=True))
    return PiecewiseModel(module, pieces_of(Recording(_Exported(module), at, example, {})), MORE_IN_AT)


def split_pipe(pipe: Pipe) -> PiecewiseModel:
    """Returns the stages of a Pipe as pieces. Parameters have the names of the model that the Pipe was made from."""
    graph = pipe.split_gm.graph
    targets = [node.target for node in graph.nodes if node.op == "call_module"]
    owned = {str(target): _Switched(pipe.split_gm.get_submodule(str(target))) for target in targets}
    for copies in pipe.replicated_params:  # torch copies a shared parameter into each stage; here the copies are tied
        stage, name = next(iter(copies.items()))
        shared = _attribute(pipe.split_gm.get_submodule(stage), name)
        for module in owned.values():
            for other in [n for n, _ in module.inner.named_parameters(remove_duplicate=False) if n in copies.values()]:
                _set_attribute(module.inner, other, shared)
    stages = [module.inner for module in owned.values()]
    _join_names(stages, {name for copies in pipe.replicated_params for name in copies.values()})
    whole = nn.Module()
    _name_alike(whole, stages)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    example = tuple(torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype) for node in inputs)
    subject = _Exported(pipe.split_gm, whole)
    return PiecewiseModel(whole, pieces_of(Recording(subject, [str(t) for t in targets[1:]],
                                                     example[0] if len(example) == 1 else example, owned)),
                          "cut the Pipe into more stages")


def _join_names(stages: Sequence[nn.Module], shared: Set[str]) -> None:
    """Merges parameters that were one parameter with several names in the model.

    PyTorch gives each stage a copy under one of the names. Depending on Python's hash seed, the stage reads this copy or
    the parameter under another name. So a shared parameter that a stage has but doesn't read shows that two names mean the
    same parameter. Throws ValueError if several parameters are candidates.
    """
    for stage in stages:
        read = _read(stage)
        parameters = dict(stage.named_parameters(remove_duplicate=False))
        for name in sorted(shared & set(parameters) - read):
            unread = parameters[name]
            same = {id(one): one for other, one in parameters.items()
                    if other in read and one.shape == unread.shape and torch.equal(one, unread)}
            if len(same) > 1:
                names = [other for other, one in parameters.items() if id(one) in same]
                raise ValueError(f"'{name}' has several names in the model, and it is unclear which of {names} is the same "
                                 f"parameter, because they have equal values. Cut the model with hetu.torch.split(model, "
                                 f"at=[...]).")
            for module in stages if same else ():
                for other, one in list(module.named_parameters(remove_duplicate=False)):
                    if id(one) in same:
                        _set_attribute(module, other, unread)


def _read(module: nn.Module, prefix: str = "") -> set[str]:
    """Returns the names of the parameters that a traced module reads."""
    graph = getattr(module, "graph", None)
    if not isinstance(graph, fx.Graph):
        return {prefix + name for name, _ in module.named_parameters(remove_duplicate=False)}
    found = {f"{prefix}{node.target}" for node in graph.nodes if node.op == "get_attr"}
    for node in graph.nodes:
        if node.op == "call_module":
            found |= _read(module.get_submodule(str(node.target)), f"{prefix}{node.target}.")
    return found


def _name_alike(whole: nn.Module, stages: Sequence[nn.Module]) -> None:
    """Makes a tree of modules that has the stages' tensors under their names."""
    for stage in stages:
        for name, parameter in stage.named_parameters(remove_duplicate=False):
            owner, _, attribute = name.rpartition(".")
            _place(whole, owner).register_parameter(attribute, parameter)
        for name, buffer in stage.named_buffers():
            owner, _, attribute = name.rpartition(".")
            kept = attribute not in stage.get_submodule(owner)._non_persistent_buffers_set
            _place(whole, owner).register_buffer(attribute, buffer, persistent=kept)


def _place(whole: nn.Module, name: str) -> nn.Module:
    for part in name.split(".") if name else ():
        if part not in whole._modules:
            whole.add_module(part, nn.Module())
        inner = whole._modules[part]
        assert inner is not None
        whole = inner
    return whole


def _names(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "placeholder"]


class _Exported:
    """A traced graph as a subject of recording. Its calls are the same for every form of the inputs."""

    def __init__(self, module: fx.GraphModule, model: nn.Module | None = None) -> None:
        self.module, self.model = module, model or module
        self.names = _names(module.graph)
        self.modules: list[set[str]] = []  # by call: the modules of the exported model that contain it

    def modes(self, training: bool) -> tuple[bool, ...]:
        """Returns the mode that operators follow."""
        return (training,)

    def attributes(self) -> dict[tuple[str, str, int], Any]:
        """Returns an empty dict: a graph reads no attributes except tensors."""
        return {}

    def begins(self, program: Program, at: Sequence[str]) -> list[int]:
        """Returns the first call of each of the modules. Throws ValueError, which names the module, if a module has no
        call."""
        found = []
        for name in at:
            calls = [n for n, modules in enumerate(self.modules) if name in modules]
            if not calls:
                known = dict.fromkeys(one for modules in self.modules for one in modules if one)
                raise ValueError(f"the exported program has no operator of a module '{name}'; {near(name, known)}")
            found.append(calls[0])
        if len(set(found)) < len(found) or 0 in found:
            raise ValueError(f"at={list(at)}: two pieces begin with the same operator, or the first one is empty")
        return sorted(found)

    def record(self, key: FormKey) -> Program:
        """Returns the recorded calls. Throws RecordingError if the graph doesn't accept the inputs."""
        result = Program([], {}, {}, {}, {}, [], None)
        slots: dict[fx.Node, int] = {}
        self.modules = []
        leaf_of = self._leaves(key)
        tensors = dict([*self.model.named_parameters(remove_duplicate=False),
                        *self.model.named_buffers(remove_duplicate=False)])
        for node in self.module.graph.nodes:
            slot = slots[node] = len(slots) + 1
            value = node.meta.get("val")
            result.storages[slot] = value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else -slot
            if node.op == "placeholder":
                leaf = leaf_of[str(node.target)]
                self._check_shape(node, key.leaves[leaf])
                result.inputs[slot] = leaf
            elif node.op == "get_attr" and node.target in tensors:
                result.tensors[slot] = str(node.target)
            elif node.op == "get_attr":
                result.constants[slot] = _attribute(self.module, str(node.target))
            elif node.op == "output":
                leaves, result.out_tree = flatten(self._output(node))
                result.out_leaves = [Slot(slots[leaf]) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
            elif not (node.op == "call_module" and str(node.target).startswith("_guards_fn")):
                self._append(result, node, slots, key.modes[0])
        return result

    def _append(self, result: Program, node: fx.Node, slots: dict[fx.Node, int], training: bool) -> None:
        args, kwargs = node.args, node.kwargs
        if node.op == "call_function" and not training:
            args, kwargs = _in_evaluation(node)
            # the program was exported in train(), where batch norm counts its batches; in eval() it doesn't
            if str(node.target) == "aten.add_.Tensor" and "num_batches_tracked" in str(node.args[0]):
                return
        leaves, tree = flatten((_plain(args), _plain(kwargs)))
        leaves = [Slot(slots[leaf]) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
        written = [argument for argument, about in zip(node.args, _arguments(node), strict=False)
                   if about.alias_info is not None and about.alias_info.is_write]
        line = (node.meta.get("stack_trace") or "an unknown line").strip().splitlines()[-1].strip()
        target = str(node.target) if node.op == "call_module" else node.target
        result.calls.append(Call(target, leaves, tree, {WHOLE: slots[node]},
                                 [slots[one] for one in written if isinstance(one, fx.Node)], None, line))
        paths = [str(path).partition("@")[0] for path, _ in node.meta.get("nn_module_stack", {}).values()]
        self.modules.append({str(target)} if node.op == "call_module" else set(paths))

    def _output(self, node: fx.Node) -> Any:
        found = _plain(node.args[0])
        spec = getattr(self.module, "_out_spec", None)
        if spec is not None and self.model is self.module:
            return unflatten(flatten(found)[0], spec)
        return found[0] if isinstance(found, tuple) and len(found) == 1 else found

    def _leaves(self, key: FormKey) -> dict[str, int]:
        """Returns the number of the batch's leaf for each input of the graph."""
        value = unflatten(list(range(len(key.leaves))), key.tree)
        if isinstance(value, dict):
            for name in value:
                if name not in self.names:
                    raise RecordingError(f"input '{name}': the exported program takes no such input; "
                                         f"{near(name, self.names)}")
            for name in self.names:
                if name not in value:
                    raise RecordingError(f"input '{name}' is missing, and the exported program needs it")
            return dict(value)
        if len(key.leaves) != len(self.names):
            raise RecordingError(f"the exported program takes {len(self.names)} inputs ({', '.join(self.names)}), but got "
                                 f"{len(key.leaves)}")
        return {name: number for number, name in enumerate(self.names)}

    def _check_shape(self, node: fx.Node, given: Any) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(given, TensorSpec):
            return
        if len(value.shape) != len(given.shape) or any(isinstance(a, int) and a != b
                                                       for a, b in zip(value.shape, given.shape, strict=True)):
            raise FixedShapesError(f"input '{node.target}' of the exported program has the shape {list(value.shape)}, and a "
                                   f"micro-batch has {list(given.shape)}. Export it with an example of one micro-batch, or "
                                   f"with dynamic shapes")


def _attribute(module: nn.Module, name: str) -> Any:
    owner, _, attribute = name.rpartition(".")
    return getattr(module.get_submodule(owner), attribute)


def _set_attribute(module: nn.Module, name: str, value: Any) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, value)


def _plain(value: Any) -> Any:
    """Returns fx's immutable collections as ordinary ones."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) is tuple else [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _arguments(node: fx.Node) -> Sequence[Any]:
    schema = getattr(node.target, "_schema", None)
    return schema.arguments if schema is not None else ()


def _in_evaluation(node: fx.Node) -> tuple[Any, Any]:
    """Returns the arguments of an operator in eval(). Export has fixed the arguments of train()."""
    args, kwargs = list(node.args), dict(node.kwargs)
    for number, about in enumerate(_arguments(node)):
        off = {"train": False, "training": False, "dropout_p": 0.0}.get(about.name)
        if off is not None and number < len(args):
            args[number] = off
        elif off is not None and about.name in kwargs:
            kwargs[about.name] = off
    return tuple(args), kwargs


class _Switched(nn.Module):
    """A stage of a Pipe, whose operators follow train() and eval(). Export has fixed them to one mode."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.fixed_to = True  # the mode that the operators are in

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the stage in the mode of this module."""
        if self.training != self.fixed_to:
            self.fixed_to = self.training
            for module, node in self._operators():
                node.meta.setdefault("in_training", (node.args, node.kwargs))
                node.args, node.kwargs = node.meta["in_training"] if self.training else _in_evaluation(node)
                if isinstance(module, fx.GraphModule):
                    module.recompile()
        return self.inner(*args, **kwargs)

    def _operators(self) -> Iterator[tuple[nn.Module, fx.Node]]:
        for module in self.inner.modules():
            graph = getattr(module, "graph", None)
            for node in graph.nodes if isinstance(graph, fx.Graph) else ():
                if any(about.name in ("train", "training", "dropout_p") for about in _arguments(node)):
                    yield module, node
