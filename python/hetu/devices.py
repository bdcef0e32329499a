"""Devices and the grid that they form: rows are stages, columns are pipelines, and equal neighbouring rows merge into one
stage.

`gpu(i)` names the i-th worker of a host. The device that a worker computes on is chosen separately (`--device`,
resolve_device). A pure function turns a list and the started workers into a Layout.
"""
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence

MOST_STAGES = 4  # of an automatic layout
NAME = re.compile(r"pipe_([1-9][0-9]{0,5})_([1-9][0-9]{0,5})")
FORM = re.compile(r"(?:(?P<host>[A-Za-z0-9._-]+):)?(?P<kind>cpu|gpu)(?::(?P<index>[0-9]{1,6}))?")
DEVICES = {"auto": "auto", "cpu": "cpu", "cuda": "cuda", "gpu": "cuda"}  # values of --device, and what is meant
LOCAL = "localhost"


class DeviceError(ValueError):
    """A device, a list or a choice that does not fit. The message is one line: what was asked, what was found and what is
    right."""


@dataclasses.dataclass(frozen=True, order=True)
class Device:
    """A device. Its text form is host:kind:index."""
    host: str
    kind: str
    index: int

    def __post_init__(self):
        if not isinstance(self.index, int) or isinstance(self.index, bool) or self.index < 0:
            raise DeviceError(f"{self.kind}({self.index!r}): the index must be a whole number of at least 0")
        if not isinstance(self.host, str) or not re.fullmatch(r"[A-Za-z0-9._-]+", self.host):
            raise DeviceError(f"host {self.host!r}: it must be a host name, e.g. 'w0'")

    def __str__(self):
        return f"{self.host}:{self.kind}:{self.index}"


def cpu(index: int = 0) -> Device:
    """Returns processor `index` of this host."""
    return Device(LOCAL, "cpu", index)


def gpu(index: int = 0) -> Device:
    """Returns worker `index` of this host."""
    return Device(LOCAL, "gpu", index)


def rcpu(host: str, index: int = 0) -> Device:
    """Returns processor `index` of a host."""
    return Device(host, "cpu", index)


def rgpu(host: str, index: int = 0) -> Device:
    """Returns worker `index` of a host."""
    return Device(host, "gpu", index)


def parse_devices(text: str) -> list[Device]:
    """Parses devices in text form, separated by ';', ',' or space: "w0:gpu:0; gpu:1". Raises DeviceError."""
    devices = []
    for word in re.split(r"[;,\s]+", text.strip("; ,\t\n")):
        found = FORM.fullmatch(word)
        if not found:
            raise DeviceError(f"device '{word}': it must be host:gpu:0, host:cpu:0, gpu:0 or cpu:0, "
                              "separated by ';', ',' or space")
        devices.append(Device(found["host"] or LOCAL, found["kind"], int(found["index"] or 0)))
    return devices


@dataclasses.dataclass(frozen=True)
class Layout:
    """The assignment of stages to workers.

    worker_of: the number of the worker, by pipeline and then by stage.
    rows_of: the rows of the list that merged into the stage, by stage.
    note: a line to print; "" if the user chose the layout.
    replicas: the number of workers of each stage, for a list whose rows differ in length; else empty. Such a list is one
    pipeline. worker_of then holds one row with the workers, stage by stage, and micro-batch g runs on replica g mod D of
    each stage.
    """
    name: str
    pipelines: int
    stages: int
    worker_of: tuple[tuple[int, ...], ...]
    rows_of: tuple[tuple[int, ...], ...]
    note: str = ""
    replicas: tuple[int, ...] = ()

    @property
    def of_threads(self) -> bool:
        """True if the workers are threads of one process (hetu.job.thread_workers)."""
        return self.name.startswith("threads:")

    def place_of(self, worker: int) -> tuple[int, int]:
        """Returns the (pipeline, stage) of a worker; with replicas, (0, its position stage by stage). Raises DeviceError."""
        for pipeline, column in enumerate(self.worker_of):
            if worker in column:
                return pipeline, column.index(worker)
        raise DeviceError(f"worker {worker} is not in the layout {self.name} of {sum(map(len, self.worker_of))} workers")

    def number_of(self, worker: int) -> int:
        """Returns the worker's number in the plan: pipeline * stages + stage, or its position stage by stage with replicas.
        """
        pipeline, place = self.place_of(worker)
        return pipeline * len(self.worker_of[0]) + place

    def describe(self) -> str:
        """Returns name and size as readable text."""
        if self.replicas:
            return f"{self.name}: {_many(self.stages, 'stage')} on {' + '.join(map(str, self.replicas))} workers"
        return f"{self.name}: {_many(self.pipelines, 'pipeline')} x {_many(self.stages, 'stage')}"


Hosts = Sequence[tuple[str, int]]  # (host, number of workers), in the order of the workers' numbers


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _started(hosts: Hosts) -> str:
    return ", ".join(f"{host} with {_many(workers, 'worker')}" for host, workers in hosts)


def _same_host(host: str, hosts: Hosts) -> str | None:
    """Returns the started host that a list's host refers to, or None. "localhost" refers to the only started host."""
    if any(host == h for h, _ in hosts):
        return host
    if host == LOCAL and len(hosts) == 1:
        return hosts[0][0]
    return None


def rows_of_devices(name: str, rows: Sequence) -> list[list[Device]]:
    """Returns a list as rows of devices. A row is a list of devices, or text. Raises DeviceError with row and entry."""
    if isinstance(rows, str) or not isinstance(rows, Sequence) or not rows:
        raise DeviceError(f"device list {name}: it must be a list of rows (stages), each a list of gpu(i) or "
                          f"rgpu(host, i), one per pipeline; got {rows!r}")
    result: list[list[Device]] = []
    for r, row in enumerate(rows):
        if isinstance(row, Device):
            row = [row]
        if isinstance(row, str):
            row = parse_devices(row)
        if not isinstance(row, Sequence) or not row:
            raise DeviceError(f"device list {name}, row {r}: it must be a list of devices; got {row!r}")
        for e, entry in enumerate(row):
            if not isinstance(entry, Device):
                raise DeviceError(f"device list {name}, row {r}, entry {e}: it must be gpu(i) or rgpu(host, i); "
                                  f"got {entry!r}")
            if entry.kind != "gpu":
                raise DeviceError(f"device list {name}, row {r}, entry {e}: {entry} is not a worker; write gpu(i), the "
                                  "i-th worker of a host, and choose the device with --device")
        result.append(list(row))
    return result


def fit(name: str, rows: Sequence, hosts: Hosts) -> Layout:
    """Assigns the entries of a list to the started workers. Raises DeviceError with row and entry if the list does not fit.
    """
    grid = rows_of_devices(name, rows)
    workers_of: dict[str, list[int]] = {}
    total = 0
    for host, workers in hosts:
        workers_of.setdefault(host, []).extend(range(total, total + workers))
        total += workers
    fused: list[list[int]] = []  # the rows of each stage
    for r in range(len(grid)):
        if r and grid[r] == grid[r - 1]:
            fused[-1].append(r)
        else:
            fused.append([r])
    seen: dict[int, tuple[int, int]] = {}
    stages = []
    for stage in fused:
        numbers = []
        for e, device in enumerate(grid[stage[0]]):
            where = f"device list {name}, row {stage[0]}, entry {e}: {device}"
            host = _same_host(device.host, hosts) or ""
            if not host:
                raise DeviceError(f"{where} is on a host that was not started; started: {_started(hosts)}")
            count = len(workers_of[host])
            if device.index >= count:
                raise DeviceError(f"{where}: host {host} has {_many(count, 'worker')}; the index must be below "
                                  f"{count}")
            worker = workers_of[host][device.index]
            if worker in seen:
                row, entry = seen[worker]
                raise DeviceError(f"{where} is already in row {row}, entry {entry}; a worker may occur only once (equal "
                                  "neighbouring rows are joined)")
            seen[worker] = (stage[0], e)
            numbers.append(worker)
        stages.append(numbers)
    unused = [w for w in range(total) if w not in seen]
    if unused:
        owner = next(host for host, numbers in workers_of.items() if unused[0] in numbers)
        raise DeviceError(f"device list {name}: {_many(total, 'worker')} started, but the list's rows of "
                          f"{', '.join(str(len(s)) for s in stages)} entries name {len(seen)}; worker {unused[0]} "
                          f"({owner}:gpu:{workers_of[owner].index(unused[0])}) has no entry; start "
                          f"{_many(len(seen), 'worker')}, or choose another list with --devices")
    rows_of, lengths = tuple(map(tuple, fused)), tuple(len(stage) for stage in stages)
    if len(set(lengths)) > 1:
        everyone = tuple(number for numbers in stages for number in numbers)
        return Layout(name, 1, len(stages), (everyone,), rows_of, replicas=lengths)
    return Layout(name, lengths[0], len(stages), tuple(zip(*stages, strict=True)), rows_of)


def lay_out(pipelines: int, stages: int, hosts: Hosts, note: str = "") -> Layout:
    """Returns the layout pipe_<pipelines>_<stages>, in which worker = pipeline * stages + stage. Raises DeviceError."""
    total, name = sum(workers for _, workers in hosts), f"pipe_{pipelines}_{stages}"
    if pipelines * stages != total:
        raise DeviceError(f"device list {name}: {_many(pipelines, 'pipeline')} x {_many(stages, 'stage')} need "
                          f"{_many(pipelines * stages, 'worker')}, {total} started ({_started(hosts)}); "
                          f"start that many, e.g. heturun -w {pipelines * stages}, or choose another list")
    grid = tuple(tuple(p * stages + s for s in range(stages)) for p in range(pipelines))
    return Layout(name, pipelines, stages, grid, tuple((s,) for s in range(stages)), note)


def choose(choice: str, lists: Mapping[str, Sequence], hosts: Hosts) -> Layout:
    """Returns the layout of a job. Raises DeviceError.

    choice: the name given by --devices or HETU_DEVICES, or "". It may also be a list itself, such as
    "gpu:0,gpu:2/gpu:1,gpu:3": rows (stages) separated by "/", each with the worker of each pipeline.
    lists: the device lists of the user's file, by name.
    A name pipe_<pipelines>_<stages> that the file lacks is applied to the started workers. Without a choice, the list
    my_device is used if its hosts are the started hosts. Otherwise the layout has as many stages as possible, up to 4.
    """
    hosts = [(host, workers) for host, workers in hosts if workers]
    if choice:
        if choice in lists:
            return fit(choice, lists[choice], hosts)
        if ":" in choice:
            return fit("of --devices", [parse_devices(row) for row in choice.split("/")], hosts)
        named = NAME.fullmatch(choice)
        if named:
            return lay_out(int(named[1]), int(named[2]), hosts)
        if choice in DEVICES:
            raise DeviceError(f"--devices {choice}: this option lays out the workers; did you mean "
                              f"--device={DEVICES[choice]}?")
        known = f"device_list.py defines {', '.join(sorted(lists))}; " if lists else ""
        raise DeviceError(f"--devices {choice}: no such list; {known}"
                          "pipe_<pipelines>_<stages> and rows of workers such as gpu:0/gpu:1 are also accepted")
    total, reason = sum(workers for _, workers in hosts), ""
    if "my_device" in lists:
        wanted = sorted({d.host for row in rows_of_devices("my_device", lists["my_device"]) for d in row})
        if {_same_host(h, hosts) for h in wanted} == {h for h, _ in hosts}:
            return fit("my_device", lists["my_device"], hosts)
        if {host for host, _ in hosts} != {LOCAL}:  # otherwise the list is the sample that comes with Hetu
            reason = f" on {_started(hosts)}, because the list my_device of device_list.py names {', '.join(wanted)}"
    stages = max(s for s in range(1, MOST_STAGES + 1) if total % s == 0)
    layout = lay_out(total // stages, stages, hosts)
    other = f"pipe_{total}_1" if stages > 1 else f"pipe_1_{total}"
    note = (f"{_many(total, 'worker')}: {_many(layout.pipelines, 'pipeline')} x {_many(stages, 'stage')}{reason} (for "
            f'another layout: hetu.Executor(devices="{other}"), or --devices {other} of Hetu\'s scripts)')
    return dataclasses.replace(layout, note="" if total == 1 else note)


def _compiled():
    """Imports the compiled module, which fitting a list and the launcher's tests don't need."""
    from hetu import _hetu
    return _hetu


def lists_of(module) -> dict[str, Sequence]:
    """Returns the device lists that a module such as device_list.py defines, by name."""
    return {name: value for name, value in vars(module).items()
            if isinstance(value, list) and value and not name.startswith("_")}


def started_hosts() -> list[tuple[str, int]]:
    """Returns the hosts of this job and their numbers of workers, as heturun (or Open MPI) started them. In a job that was
    started by hand, waits for its workers; a host then occurs once for each run of consecutive ranks. Raises DeviceError."""
    env = _compiled().env()
    hosts = [tuple(host) for host in _compiled().started()[0]] or [(LOCAL, env["workers"])]
    total = sum(workers for _, workers in hosts)
    if total != env["workers"]:
        raise DeviceError(f"HETU_HOSTS names {_many(total, 'worker')}, Open MPI started {env['workers']}; start the "
                          "command with heturun")
    return hosts


def layout(choice: str | None = None, lists: Mapping[str, Sequence] | None = None) -> Layout:
    """Returns choose() for this job. `choice` None means HETU_DEVICES; `lists` None means the script's device_list.py."""
    if lists is None:
        try:
            import device_list
        except ModuleNotFoundError as error:
            if error.name != "device_list":
                raise
            lists = {}
        else:
            lists = lists_of(device_list)
    return choose(_compiled().env()["devices"] if choice is None else choice, lists, started_hosts())


def say(text: str) -> None:
    """Prints a line of this module on standard error."""
    sys.stderr.write(f"hetu: {text}\n")


_said: set[str] = set()


def resolve_device(name: str = "auto", cuda: Callable[[], str] | None = None, worker: int | None = None,
                   say: Callable[[str], None] = say, variable: str | None = None) -> str:
    """Returns the device that workers compute on: "cpu", "cuda" or, for tests, "far" (executor/device).

    name: "auto" means HETU_DEVICE or, without it, CUDA if it is available. Worker 0 prints the choice once.
    cuda: returns the reason why CUDA can't be used, or "".
    worker: this worker's number.
    variable: the value of HETU_DEVICE. The defaults of these three are those of this process.
    Raises DeviceError, or NotImplementedError if cuda is requested but not available.
    """
    if cuda is None:
        cuda = _compiled().cuda_problem
    if worker is None:
        worker = _compiled().env()["worker"]
    asked, otherwise = f"--device {name}", "--device cpu or auto"
    if name == "auto":
        name = variable if variable is not None else _compiled().env()["device"]
        if name != "auto":
            asked, otherwise = f"environment variable HETU_DEVICE: {name}", "cpu or auto there, or --device cpu"
    known = ["auto", "cuda", *(known for known in _compiled().device_names() if known != "cuda")]
    if name not in known:
        raise DeviceError(f"{asked}: it must be one of {', '.join(known)}")
    if name not in ("auto", "cpu", "cuda"):
        return name
    problem = "" if name == "cpu" else cuda()
    if name == "cuda" and problem:
        raise NotImplementedError(f"{asked}: {problem} (docs/gpu.md); use {otherwise}")
    chosen = "cpu" if name == "cpu" or problem else "cuda"
    line = f"computing on {chosen}" + (f" ({problem})" if problem else "")
    if worker == 0 and line not in _said:
        _said.add(line)
        say(line)
    return chosen
