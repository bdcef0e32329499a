"""Open MPI's mpirun, and its command lines."""
import os
import re
import shutil
import subprocess

from hetu.launch import remote

# Allocations of batch systems are not asked: the cluster file says what runs where.
NO_ALLOCATION = "^alps,gridengine,loadleveler,lsf,slurm,tm"


class Mpirun:
    """The Open MPI that is installed."""

    def __init__(self):
        self.path = shutil.which("mpirun")
        if not self.path:
            raise OSError("mpirun is not installed or not in PATH; install Open MPI (Debian: openmpi-bin)")
        text = subprocess.run([self.path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
        match = re.search(r"Open MPI\D*?(\d+)\.", text)
        if not match:
            said = (text.strip().splitlines() or [""])[0]
            raise OSError(f"{self.path} is not Open MPI (it says '{said}'); Open MPI 4 or 5 is right")
        self.major = int(match.group(1))

    def daemon(self):
        """Path of the program that it starts on other hosts: beside itself, because it was given with its path."""
        return os.path.join(os.path.dirname(self.path), "orted" if self.major < 5 else "prted")

    def start(self, nodes):
        """What every command line begins with."""
        from hetu import _hetu

        used = [n for n in nodes if n["workers"]]
        if len(used) == 1:
            hosts, order = f"{used[0]['host']}:{used[0]['workers']}", "slot"
        else:  # a host per worker, in sequence: by slots, this host would come first wherever the cluster file has it
            hosts, order = ",".join(n["host"] for n in used for _ in range(n["workers"])), "seq"
        argv = [self.path, "--host", hosts, "-np", str(sum(n["workers"] for n in used)), "--bind-to", "none",
                "--map-by", f"{order}:OVERSUBSCRIBE", "--mca", "ras", NO_ALLOCATION, "--mca", "pml", "ob1"]
        if os.geteuid() == 0:
            argv.append("--allow-run-as-root")
        if max(n["workers"] for n in nodes) > _hetu.machine_cores():
            argv += ["--mca", "mpi_yield_when_idle", "1"]
        return argv

    def shared_memory(self):
        """Name of the component for workers of one host."""
        return "sm" if self.major >= 5 else "vader"

    def local(self, directory, shm):
        """For one host: no network but loopback, no remote shell, no files but the job's own."""
        argv = ["--mca", "btl", f"self,{self.shared_memory()}"]
        if self.major < 5:
            argv += ["--mca", "oob_tcp_if_include", "127.0.0.0/8", "--mca", "plm", "isolated",
                     "--mca", "orte_tmpdir_base", directory]
        else:  # refuses to be held to loopback while there is another interface; does without when there is none
            argv += ["--prtemca", "prte_tmpdir_base", directory]
        if shm:
            argv += ["--mca", f"btl_{self.shared_memory()}_backing_directory", shm]
        if not may_read_processes():
            argv += ["--mca", f"btl_{self.shared_memory()}_single_copy_mechanism", "none"]
        return argv

    def remote(self, key, interface, exported, number):
        """For several hosts: ssh with its configuration, TCP on the chosen interface or network. `number` of the job's
        mpiruns: daemons of two on one host, that make or remove the same folder at once, fail, so each has its own."""
        tool = "--prtemca" if self.major >= 5 else "--mca"
        shell = "plm_ssh" if self.major >= 5 else "plm_rsh"
        argv = ["--mca", "btl", f"self,{self.shared_memory()},tcp"]
        if self.major < 5:  # its other codings of host lists know names of 54 letters at most, and no "_"
            argv += ["--mca", "regx", "naive"]
        if interface:
            argv += ["--mca", "btl_tcp_if_include", interface,
                     tool, "oob_tcp_if_include" if self.major < 5 else "prte_if_include", interface]
        # Inside an allocation it would take Slurm's own way, which knows neither our key nor our deadline.
        argv += [tool, "plm", shell[len("plm_"):], tool, f"{shell}_args", " ".join(remote.ssh_options(key))]
        if number > 0:
            argv += [tool, f"{'prte' if self.major >= 5 else 'orte'}_tmpdir_base", f"/tmp/hetu-{os.getuid()}/{number}"]
        for name in exported:
            argv += ["-x", name]
        return argv


def closed_ports(environment, directory):
    """What to add to the environment of an mpirun on one host, so that its ports hear its own user alone, and nobody where
    they are for daemons of other hosts: see python/src/mpirun_ports.cpp. Guards take it away again from the command's.
    `directory` is the job's: LD_PRELOAD holds no path with a space. Raises OSError if it is not installed."""
    from hetu import _hetu

    library = os.path.join(os.path.dirname(os.path.realpath(_hetu.__file__)), "mpirun_ports.so")
    if not os.access(library, os.R_OK):
        raise OSError(f"{library} is missing or not readable, and without it mpirun would listen to strangers; build or "
                      "install Hetu again")
    link = os.path.join(directory, "mpirun_ports.so")
    os.symlink(library, link)
    before = environment.get("LD_PRELOAD", "")  # a sanitizer must come first
    return {"LD_PRELOAD": f"{before}:{link}" if before else link, "HETU_LD_PRELOAD": before}


def may_read_processes():
    """Whether process_vm_readv works; containers forbid it, and Open MPI would then fail in the middle of a message."""
    import ctypes

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    source, target = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    call = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    return call is not None and call(os.getpid(), ctypes.byref(Piece(ctypes.addressof(target), 8)), 1,
                                     ctypes.byref(Piece(ctypes.addressof(source), 8)), 1, 0) == 8
