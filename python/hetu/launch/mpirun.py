"""Open MPI's mpirun, and its command lines."""
import os
import re
import shutil
import subprocess

from hetu.launch import remote

# Excludes allocations of batch systems: the cluster file defines the placement of workers.
NO_ALLOCATION = "^alps,gridengine,loadleveler,lsf,slurm,tm"


def found():
    """Returns the path of mpirun, or None."""
    return shutil.which("mpirun")


class Mpirun:
    """The installed Open MPI."""

    def __init__(self):
        self.path = found()
        if not self.path:
            raise OSError("mpirun is not installed or not in PATH. A job on several hosts and HETU_TRANSPORT=mpi need Open "
                          "MPI: install it (Debian: openmpi-bin)")
        text = subprocess.run([self.path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
        match = re.search(r"Open MPI\D*?(\d+)\.", text)
        if not match:
            said = (text.strip().splitlines() or [""])[0]
            raise OSError(f"{self.path} is not Open MPI (it says '{said}'); use Open MPI 4 or 5")
        self.major = int(match.group(1))

    def daemon(self):
        """Returns the path of the program that mpirun starts on other hosts. It is in mpirun's folder, because mpirun is
        called with its path."""
        return os.path.join(os.path.dirname(self.path), "orted" if self.major < 5 else "prted")

    def start(self, nodes):
        """Returns the beginning of every command line."""
        from hetu import _hetu

        used = [n for n in nodes if n["workers"]]
        if len(used) == 1:
            hosts, order = f"{used[0]['host']}:{used[0]['workers']}", "slot"
        # A host per worker, in sequence: by slots, this host would always come first, whatever its position in the
        # cluster file.
        else:
            hosts, order = ",".join(n["host"] for n in used for _ in range(n["workers"])), "seq"
        argv = [self.path, "--host", hosts, "-np", str(sum(n["workers"] for n in used)), "--bind-to", "none",
                "--map-by", f"{order}:OVERSUBSCRIBE", "--mca", "ras", NO_ALLOCATION, "--mca", "pml", "ob1"]
        if os.geteuid() == 0:
            argv.append("--allow-run-as-root")
        if max(n["workers"] for n in nodes) > _hetu.machine_cores():
            argv += ["--mca", "mpi_yield_when_idle", "1"]
        return argv

    def shared_memory(self):
        """Returns the name of the component for workers of one host."""
        return "sm" if self.major >= 5 else "vader"

    def local(self, directory, shm):
        """Returns the arguments for one host: loopback only, no remote shell, no files except the job's own."""
        argv = ["--mca", "btl", f"self,{self.shared_memory()}"]
        if self.major < 5:
            argv += ["--mca", "oob_tcp_if_include", "127.0.0.0/8", "--mca", "plm", "isolated",
                     "--mca", "orte_tmpdir_base", directory]
        else:  # Open MPI 5 refuses a restriction to loopback if there is another interface, and doesn't need it otherwise
            argv += ["--prtemca", "prte_tmpdir_base", directory]
        if shm:
            argv += ["--mca", f"btl_{self.shared_memory()}_backing_directory", shm]
        if not may_read_processes():
            argv += ["--mca", f"btl_{self.shared_memory()}_single_copy_mechanism", "none"]
        return argv

    def remote(self, key, interface, exported, number):
        """Returns the arguments for several hosts: ssh with its configuration, and TCP on the chosen interface or network.

        number: the mpirun's number in the job. Daemons of two mpiruns on one host fail if they create or remove the same
        folder at once, so each mpirun has its own folder.
        """
        tool = "--prtemca" if self.major >= 5 else "--mca"
        shell = "plm_ssh" if self.major >= 5 else "plm_rsh"
        argv = ["--mca", "btl", f"self,{self.shared_memory()},tcp"]
        if self.major < 5:  # other encodings of host lists support names of at most 54 letters, without "_"
            argv += ["--mca", "regx", "naive"]
        if interface:
            argv += ["--mca", "btl_tcp_if_include", interface,
                     tool, "oob_tcp_if_include" if self.major < 5 else "prte_if_include", interface]
        # Inside an allocation, Open MPI would start daemons through Slurm, without our key and our deadline.
        argv += [tool, "plm", shell[len("plm_"):], tool, f"{shell}_args", " ".join(remote.ssh_options(key))]
        if number > 0:
            argv += [tool, f"{'prte' if self.major >= 5 else 'orte'}_tmpdir_base", f"/tmp/hetu-{os.getuid()}/{number}"]
        for name in exported:
            argv += ["-x", name]
        return argv


def closed_ports(environment, directory):
    """Returns additions to the environment of an mpirun on one host. They restrict its ports to its own user, and close
    ports that are meant for daemons of other hosts; see python/src/mpirun_ports.cpp. Guards remove them from the command's
    environment.

    directory: the job's folder. LD_PRELOAD can't contain a path with a space, so the library is linked there.
    Raises OSError if the library is not installed.
    """
    from hetu import _hetu

    library = os.path.join(os.path.dirname(os.path.realpath(_hetu.__file__)), "mpirun_ports.so")
    if not os.access(library, os.R_OK):
        raise OSError(f"{library} is missing or not readable; without it, mpirun would accept foreign connections. "
                      "Build or install Hetu again.")
    link = os.path.join(directory, "mpirun_ports.so")
    os.symlink(library, link)
    before = environment.get("LD_PRELOAD", "")  # a sanitizer must come first
    return {"LD_PRELOAD": f"{before}:{link}" if before else link, "HETU_LD_PRELOAD": before}


def may_read_processes():
    """Returns true if process_vm_readv works. Containers forbid it, and Open MPI would then fail in the middle of a
    message."""
    import ctypes

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    source, target = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    call = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    return call is not None and call(os.getpid(), ctypes.byref(Piece(ctypes.addressof(target), 8)), 1,
                                     ctypes.byref(Piece(ctypes.addressof(source), 8)), 1, 0) == 8
