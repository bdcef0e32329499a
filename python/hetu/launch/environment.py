"""The environment of the workers: what they inherit, and which variables other hosts receive."""
import os
import re

from hetu import openmp_spin

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder of the package hetu
# Variables that are also set for workers on other hosts.
EXPORTED = re.compile(r"(HETU|DMLC|PS|OMP|GOMP|KMP|OPENBLAS|MKL|DNNL|ONEDNN|NCCL|CUDA|IMAGENET|PYTHON|PORT$|PATH$|"
                      r"LD_LIBRARY_PATH$|VIRTUAL_ENV$|LANG$|LC_|DEBUG_HETERO$|FAULTS_OF_ROUND$)")
# Variables that an enclosing MPI job or heturun has left in the environment.
FOREIGN = re.compile(r"OMPI_COMM_|OMPI_UNIVERSE|OMPI_MCA_(orte|ess|pmix|prte)_|PMIX_|PRTE_|"
                     r"HETU_(JOB|HOSTS|PROGRESS_FD|CONTROL_TOKEN|COORDINATOR|SERVERS|FIRST_WORKER|PIPELINES|ROUND|"
                     r"RUN_FOLDER)$")


def threads_of(command, fallback):
    """Returns the threads per worker on the command line, or `fallback`."""
    for i, word in enumerate(command):
        match = re.fullmatch(r"--threads(?:=(\d+))?", word)
        value = match and (match.group(1) or (command[i + 1] if i + 1 < len(command) else ""))
        if value and value.isdigit():
            return int(value)
    return fallback


def worker_environment(environ, nodes, command, threads):
    """Returns the environment of the workers, which import the same package as this process.

    If threads outnumber the cores, they sleep while they wait; otherwise they spin briefly. NumPy's OpenBLAS, whose threads
    spin for a while, gets as many threads as a worker has cores.
    """
    from hetu import _hetu  # imported late: --help and a wrong flag don't need it

    result = {k: v for k, v in environ.items() if not FOREIGN.match(k)}
    result["HETU_HOSTS"] = ",".join(f"{n['host']}:{n['workers']}" for n in nodes if n["workers"])
    result["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), os.path.dirname(PACKAGE)]))
    result.setdefault("PYTHONUNBUFFERED", "1")
    if not has_home(environ):  # as in Docker; Open MPI crashes without HOME
        result["HOME"] = "/"
    result.setdefault("HWLOC_HIDE_ERRORS", "2")  # hides mpirun's complaint if /sys is not mounted; nothing is bound to cores
    cores = _hetu.machine_cores()
    workers = max(n["workers"] for n in nodes)
    if workers * (threads_of(command, threads) or max(1, cores // workers)) > cores:
        result.setdefault("OMP_WAIT_POLICY", "passive")
    openmp_spin.set_short(result)
    if workers > 1 and "OMP_NUM_THREADS" not in result:
        result.setdefault("OPENBLAS_NUM_THREADS", str(max(1, cores // workers)))
    return result


def has_home(environ):
    """Returns true if this user has a home folder: in the environment, or by an entry in the table of users."""
    if environ.get("HOME"):
        return True
    import pwd

    try:
        return bool(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return False
