"""The device "far" for tests: builds the back end in this folder once, and registers it with PyTorch as `torch.far`.

Call load() before the first use. `python3 far.py` only builds it and prints the time that the build took."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import subprocess
import sysconfig
import time
import types
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-Wall"]


def build() -> Path:
    """Returns the shared library. Compiles it unless the build folder has a library of this source and this PyTorch."""
    import torch

    sources = sorted(HERE.glob("far_*.cpp"))
    digest = hashlib.sha256(f"{torch.__version__} {sysconfig.get_platform()} {FLAGS}".encode())
    for path in [*sources, *sorted(HERE.glob("far_*.h"))]:
        digest.update(path.read_bytes())
    folder = _build_folder() / "torch_device" / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "far.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers that start together compile once
        if not library.is_file():
            _compile(sources, folder, library)
    return library


def _build_folder() -> Path:
    from hetu import _hetu

    return Path(_hetu.__file__).resolve().parents[2]


def _compile(sources: list[Path], folder: Path, library: Path) -> None:
    import torch

    root = Path(torch.__file__).resolve().parent
    include = [f"-I{HERE.parents[1]}", f"-isystem{root / 'include'}", f"-isystem{root / 'include/torch/csrc/api/include'}"]
    flags = [*FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", *include]
    compiler = os.environ.get("CXX", "c++")
    objects = [folder / f"{source.stem}.o" for source in sources]
    jobs = [subprocess.Popen([compiler, *flags, "-c", source, "-o", made])
            for source, made in zip(sources, objects, strict=True)]
    failed = [source.name for source, job in zip(sources, jobs, strict=True) if job.wait()]
    if failed:
        raise RuntimeError(f"{compiler} can't compile {', '.join(failed)} against PyTorch {torch.__version__}; "
                           f"its messages are above")
    beside = library.with_suffix(".part")
    subprocess.run([compiler, "-shared", "-o", beside, *objects, f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}",
                    "-ltorch_cpu", "-lc10", "-pthread"], check=True)
    os.replace(beside, library)


def load() -> types.ModuleType:
    """Registers the device in this process, and returns the module `torch.far`."""
    import torch

    if hasattr(torch, "far"):
        return torch.far
    torch.ops.load_library(build())
    torch.utils.rename_privateuse1_backend("far")
    module = _module()
    torch._register_device_module("far", module)
    torch.utils.generate_methods_for_privateuse1_backend(for_packed_sequence=False)
    # The fallback calls out= variants with outputs that it has created without a size.
    warnings.filterwarnings("ignore", "An output with one or more elements was resized")
    atexit.register(lambda: [module.synchronize(n) for n in range(module.device_count())])
    return module


def _module() -> types.ModuleType:
    """Returns a module with the functions that PyTorch expects of a device's module, such as torch.cuda."""
    import torch

    own = torch.ops.far
    module = types.ModuleType("torch.far")

    def index_of(device: object = None) -> int:
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return own.current_device() if index is None else index

    def seed_all(seed: int) -> None:
        for device in range(own.device_count()):
            own.manual_seed(seed, device)

    @contextlib.contextmanager
    def on_device(device: object) -> Iterator[None]:
        before = own.current_device()
        own.set_device(index_of(device))
        try:
            yield
        finally:
            own.set_device(before)

    functions = {
        "device": on_device,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "device_count": own.device_count,
        "current_device": own.current_device,
        "set_device": lambda device: own.set_device(index_of(device)),
        "synchronize": lambda device=None: own.synchronize(index_of(device)),
        "memory_allocated": lambda device=None: own.allocated_bytes(index_of(device)),
        "current_stream": lambda device=None: torch.accelerator.current_stream(index_of(device)),
        "stream": lambda stream: stream,  # a torch.Stream is a context manager
        "manual_seed": lambda seed: own.manual_seed(seed, own.current_device()),
        "manual_seed_all": seed_all,
        "get_rng_state": lambda device=None: own.get_rng_state(index_of(device)),
        "set_rng_state": lambda state, device=None: own.set_rng_state(state, index_of(device)),
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "get_device_name": lambda device=None: "far",
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def main() -> None:
    """Builds the back end. Prints a message where PyTorch isn't installed."""
    if find_spec("torch") is None:
        print("skipped 'PyTorch is not there: ./run torch installs it'")
        return
    start = time.monotonic()
    build()
    print(f"the back end of the device \"far\" is built: {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
