"""Readers of the files that Sailor published (Strati et al., SOSP 2025; github.com/eth-easl/sailor): times of layers,
bandwidths, and plans that ran on real GPUs with their measured step time and memory.

    files = Published("shared/data/measured/sailor")
    for plan in files.plans(): print(plan.name, plan.stages, plan.pipelines, plan.measured_s)

Formats, as far as Hetu reads them:

- profiles/MODEL/GPU/profile.json holds {micro-batch size: {tensor-parallel degree: {layer: [forward, backward, update]}}} in
  seconds. Layer 0 is the embedding, the last layer is the final norm with the output head, and the others are blocks. The
  update is the time of the whole optimizer step, and is repeated for each layer.
- varuna-format/MODEL/GPU/profile_T.json holds the bytes of a layer's weights on each of T GPUs (`params_bytes`).
- multizone_bandwidths_het.json holds {zone: {GPU: {count: {zone: {GPU: {count: [coefficients, most]}}}}}}. `count` GPUs of
  one machine send to as many GPUs of another machine at the same time. GB/s of all of them together are a polynomial of
  log2(MB per GPU), with the highest power first. `most` is the largest measured value, in bytes per second.
- intra_node_bandwidths.json holds {GPU: {count: [coefficients, most]}}: half of `count` GPUs send to the other half.
- validation/SITE/.../plan_config_NAME.json holds a plan. `layers_per_stage` has the layers of each stage. `tmp_per_stage`
  has, for each stage and each pipeline, [[[GPU, GPUs per machine, zone]], tensor-parallel degree].
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetu import files

FLOAT_BYTES = 4  # the published runs train in float32


@dataclass(frozen=True)
class Gpus:
    """The GPUs of one machine that hold one copy of a stage and share its tensors."""

    kind: str
    count: int
    zone: str


@dataclass(frozen=True)
class Plan:
    """A plan that was run, with what was measured."""

    name: str  # of the file, without plan_config_ and .json
    site: str  # folder below validation
    layers: list[list[int]]  # by stage
    copies: list[list[Gpus]]  # by stage and pipeline
    micro_batch_size: int
    global_batch: int
    machines: int
    measured_s: float
    measured_bytes: int

    @property
    def stages(self) -> int:
        return len(self.layers)

    @property
    def pipelines(self) -> int:
        return len(self.copies[0])

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one pipeline and step."""
        return self.global_batch // (self.micro_batch_size * self.pipelines)

    @property
    def group(self) -> tuple[str, int, int]:
        """Returns site, machines and global batch. Plans that agree in them can be ranked."""
        return self.site, self.machines, self.global_batch


@dataclass(frozen=True)
class Model:
    """Sizes of the trained transformer."""

    name: str
    hidden: int
    length: int
    heads: int
    layers: int  # with embedding and head


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidth as a function of the message size."""

    coefficients: list[float]
    most: float  # bytes per second
    where: str

    def at(self, message_bytes: float) -> float:
        """Returns bytes per second of all GPUs together, for messages of this size per GPU, above 0."""
        x = math.log2(message_bytes / 1e6)
        speed = 0.0
        for coefficient in self.coefficients:
            speed = speed * x + coefficient
        if speed <= 0:
            raise ValueError(f"{self.where}: the polynomial gives {speed:.3g} GB/s for messages of {message_bytes:.0f} "
                             "bytes; expected a positive number")
        return min(speed * 1e9, self.most)


def _entry(values: Any, key: str, where: str, what: str) -> Any:
    """Returns an entry of a JSON object, or throws ValueError that names the known entries."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected an object with one entry per {what}, got {type(values).__name__}")
    if key not in values:
        known = ", ".join(sorted(values, key=lambda k: (len(k), k))) or "none"
        raise ValueError(f"{where}: has no {what} {key}; known: {known}")
    return values[key]


class Published:
    """The published files of one model. Files are read when they are first needed."""

    def __init__(self, folder: str | os.PathLike[str], model: str = "OPT-350") -> None:
        self.folder = Path(folder)
        if not (self.folder / "profiles").is_dir():
            raise ValueError(f"{self.folder}: has no folder profiles; name the folder of Sailor's files")
        self.model = self._read_model(model)
        self._read: dict[Path, Any] = {}

    def _read_model(self, name: str) -> Model:
        known = []
        for path in sorted(self.folder.glob("training_config_*.json")):
            values = files.read_json(path)
            known.append(str(_entry(values, "model", str(path), "key")))
            if known[-1] == name:
                sizes = [int(_entry(values, key, str(path), "key"))
                         for key in ("hidden_size", "sequence_length", "heads", "num_all_layers")]
                return Model(name, *sizes)
        raise ValueError(f"{self.folder}: no training_config_*.json is of model {name}; known: {', '.join(known) or 'none'}")

    def _json(self, path: Path) -> Any:
        if path not in self._read:
            self._read[path] = files.read_json(path)
        return self._read[path]

    def _profile(self, gpu: str) -> tuple[Any, str]:
        folder = self.folder / "profiles" / self.model.name
        if not (folder / gpu / "profile.json").is_file():
            known = ", ".join(sorted(path.parent.name for path in folder.glob("*/profile.json"))) or "none"
            raise ValueError(f"{folder}: has no profile of GPU {gpu}; known: {known}")
        return self._json(folder / gpu / "profile.json"), str(folder / gpu / "profile.json")

    def times(self, gpus: Gpus, size: int, layer: int, smooth: bool = True) -> tuple[float, float, float]:
        """Returns a layer's forward, backward and update, in seconds, for a micro-batch of `size` rows. With `smooth`, none
        of them is larger than for a larger micro-batch: the GPU does a part of the same work."""
        values, where = self._profile(gpus.kind)
        _entry(values, str(size), where, "micro-batch size")
        degree = str(gpus.count)
        sizes = [s for s in values if (s == str(size) or (smooth and int(s) > size and degree in values[s]))]
        rows = []
        for s in sizes:
            place = f"{where}, micro-batch size {s}"
            layers = _entry(values[s], degree, place, "tensor-parallel degree")
            rows.append(_entry(layers, str(layer), f"{place}, tensor-parallel degree {degree}", "layer"))
        forward, backward, update = (min(column) for column in zip(*rows, strict=True))
        return forward, backward, update

    def weight_bytes(self, layer: int, degree: int) -> int:
        """Returns the bytes of a layer's weights on each of `degree` GPUs. They don't depend on the kind of GPU."""
        folder = self.folder / "varuna-format" / self.model.name
        paths = sorted(folder.glob(f"*/profile_{degree}.json"))
        if not paths:
            raise ValueError(f"{folder}: has no profile_{degree}.json with the bytes of layers on {degree} GPUs")
        by_size = _entry(self._json(paths[0]), str(layer), str(paths[0]), "layer")
        for values in by_size.values():
            if "params_bytes" in values:
                return int(values["params_bytes"])
        raise ValueError(f"{paths[0]}: layer {layer} has no params_bytes")

    def link(self, sender: Gpus, receiver: Gpus) -> Bandwidth:
        """Returns the bandwidth between two machines when all GPUs of the copies send at the same time."""
        path = self.folder / "multizone_bandwidths_het.json"
        values, where = self._json(path), str(path)
        for key, what in ((sender.zone, "zone"), (sender.kind, "GPU"), (str(sender.count), "number of GPUs"),
                          (receiver.zone, "zone"), (receiver.kind, "GPU"), (str(receiver.count), "number of GPUs")):
            values = _entry(values, key, where, what)
            where = f"{where}, {key}"
        return Bandwidth(values[0], values[1], where)

    def inside(self, gpus: Gpus) -> Bandwidth:
        """Returns the bandwidth from one half of a machine's GPUs to the other half."""
        path = self.folder / "intra_node_bandwidths.json"
        by_count = _entry(self._json(path), gpus.kind, str(path), "GPU")
        values = _entry(by_count, str(gpus.count), f"{path}, {gpus.kind}", "number of GPUs")
        return Bandwidth(values[0], values[1], f"{path}, {gpus.kind}, {gpus.count}")

    def plans(self) -> list[Plan]:
        """Returns the plans below validation, by site and name."""
        root = self.folder / "validation"
        found = []
        for path in root.rglob("plan_config_*.json"):
            parts = path.relative_to(root).parts
            if self.model.name in parts[1:-1] or len(parts) == 3:  # SITE/MODEL/N/FILE, or SITE/N/FILE of the only model
                found.append(read_plan(path, parts[0]))
        if not found:
            raise ValueError(f"{root}: has no plan_config_*.json of model {self.model.name}")
        return sorted(found, key=lambda plan: (plan.site, plan.machines, plan.global_batch, plan.pipelines, plan.name))


def read_plan(path: str | os.PathLike[str], site: str = "") -> Plan:
    """Reads a plan with its measurements. Throws ValueError for a file that is not such a plan."""
    values, where = files.read_json(path), os.fspath(path)
    pipelines = _entry(values, "pipeline_list", where, "key")
    if len(pipelines) != 1:
        raise ValueError(f"{where}: pipeline_list has {len(pipelines)} entries; expected 1, with a copy per pipeline")
    layers = _entry(pipelines[0], "layers_per_stage", where, "key")
    copies = []
    for stage, given in enumerate(_entry(pipelines[0], "tmp_per_stage", where, "key")):
        copies.append([_gpus(copy, f"{where}: stage {stage}, copy {number}") for number, copy in enumerate(given)])
    if len(copies) != len(layers):
        raise ValueError(f"{where}: layers_per_stage has {len(layers)} stages but tmp_per_stage has {len(copies)}")
    for stage, here in enumerate(copies):
        if len(here) != len(copies[0]):
            raise ValueError(f"{where}: stage {stage} has {len(here)} copies but stage 0 has {len(copies[0])}; "
                             "expected the same number")
    number = {key: _entry(values, key, where, "key") for key in ("mbs", "gbs", "N", "real", "max_mem")}
    if number["mbs"] < 1 or number["gbs"] < 1 or number["gbs"] % (number["mbs"] * len(copies[0])):
        raise ValueError(f"{where}: a global batch of {number['gbs']} rows is not a multiple of {len(copies[0])} pipelines "
                         f"x micro-batches of {number['mbs']} rows")
    name = Path(path).stem.removeprefix("plan_config_")
    return Plan(name, site, layers, copies, number["mbs"], number["gbs"], number["N"], number["real"], number["max_mem"])


def _gpus(copy: Any, where: str) -> Gpus:
    machines, degree = copy
    if len(machines) != 1:
        raise ValueError(f"{where} spans {len(machines)} machines; expected 1")
    kind, _, zone = machines[0]
    return Gpus(kind, degree, zone)
