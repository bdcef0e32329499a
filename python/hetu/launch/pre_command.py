"""heturun --pre-command: a shell command that runs once on each host of a job, before the workers start."""
import os
import shlex
import signal
import subprocess

from hetu.launch import network, processes, remote

OF_SSH = 255  # ssh's own exit status


def words_of(text, host, key):
    """Returns the command that runs `text` on a host, in the folder of this process."""
    if network.is_this_host(host):
        return ["sh", "-c", text]
    where = shlex.quote(os.getcwd())
    return ["ssh", *remote.ssh_options(key), host, f"cd {where} && exec sh -c {shlex.quote(text)}"]


def run(text, hosts, key, say):
    """Runs the command on all hosts at once, and waits for all of them. Each line of output is passed to `say` with the
    host's name. Returns the exit status: 0 if all succeed, else that of the first host whose command failed."""
    me = os.getpid()
    started = [(host, subprocess.Popen(words_of(text, host, key), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="backslashreplace",
                                       start_new_session=True,
                                       preexec_fn=lambda: processes.die_with_parent(signal.SIGKILL, me)))
               for host in dict.fromkeys(hosts)]
    failed = []
    try:
        for host, process in started:
            out, _ = process.communicate()
            for line in out.splitlines():
                say(f"{host}: {line}")
            if process.returncode:
                failed.append((host, process.returncode))
    finally:
        for _, process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not failed:
        return 0
    how = "; ".join(f"{host}: {_ending(code, host)}" for host, code in failed)
    say(f"--pre-command '{text}' failed, so no worker was started: {how}")
    code = failed[0][1]
    return 128 - code if code < 0 else code


def _ending(code, host):
    if code == OF_SSH and not network.is_this_host(host):
        return f"status {OF_SSH}, which is also ssh's for a host that it doesn't reach"
    return f"signal {-code}" if code < 0 else f"status {code}"
