"""Two hosts, w0 and w1, on one machine: network, mount, process and host-name namespaces joined by a veth pair, each with
its own sshd.

Every file is in the given folder. The machine's ssh configuration is neither read nor written, and no namespace has a name.
All processes of a host are in its process namespace. The first process of this namespace dies with the process that made it,
so nothing remains, even after a kill."""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python" / "small_jobs"))
from processes import wait_until  # noqa: E402

ADDRESS = {"w0": "10.77.0.1", "w1": "10.77.0.2"}
PORT = {"w0": 2240, "w1": 2241}  # neither is ssh's own port: only the ssh configuration has them
DEVICE = "hetu0"
TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname", "ssh", "ssh-keygen")
SPACES = ["--net", "--uts", "--ipc", "--mount", "--pid"]
START_S = 30.0

# The first process of a host. It waits for a line before it uses the network, which is added from outside.
INIT = """\
set -e
echo "$CALLED" > /proc/sys/kernel/hostname  # hostname(1) refuses "_"
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$FOLDER/hosts.$NAME" /etc/hosts
mount --bind "$FOLDER/ssh" /etc/ssh
if [ -d "$HOME/.ssh" ]; then mount -t tmpfs tmpfs "$HOME/.ssh"; fi
ip link set lo up
echo ready
read -r _
ip addr add "$ADDRESS/24" dev "$DEVICE"
ip link set "$DEVICE" up
"$SSHD" -D -E "$FOLDER/sshd.$NAME.log" -f "$FOLDER/sshd.$NAME.config" &
while :; do wait || true; sleep 1; done
"""

SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host.{name}
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers {user}
ClientAliveInterval 2
ClientAliveCountMax 3
"""

# The ssh configuration of both hosts. The alias shows that port and user come from here.
SSH_CONFIG = """\
UserKnownHostsFile {folder}/known
GlobalKnownHostsFile none
IdentitiesOnly yes
Host w0
  Port {w0}
Host w1
  Port {w1}
Host other
  HostName w1
  Port {w1}
{others}Host *
  User {user}
"""


def _die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def sshd():
    """Returns the path of sshd, or None if there is none. It is in a folder that isn't in a user's PATH."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def problem():
    """Returns the reason why two hosts can't be made here, or "" if they can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in TOOLS if not shutil.which(name, path=path)] + ([] if sshd() else ["sshd"])
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run(["unshare", *SPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                            "mount -t tmpfs tmpfs /run && ip link add hetu0 type veth peer name hetu1"],
                           capture_output=True, text=True)
    if tried.returncode:
        return f"namespaces are not permitted: {' '.join(tried.stderr.split())}"
    return ""


class TwoHosts:
    """The hosts w0 and w1. Both accept the ssh key `key`, and neither accepts `wrong_key`. `called` holds other names that
    the hosts have and are known by."""

    def __init__(self, folder, called=None):
        self.called = {name: (called or {}).get(name, name) for name in ADDRESS}
        self.folder = pathlib.Path(folder).resolve()
        self.key, self.wrong_key = self.folder / "key", self.folder / "wrong"
        self._processes = {}
        self._pids = {}
        self._own = {name: set() for name in ADDRESS}  # processes that belong to the host itself

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        try:
            for name in ADDRESS:
                self._start(name)
            (one, first), (two, second) = self._pids.items()
            subprocess.run(["ip", "link", "add", DEVICE, "netns", str(first), "type", "veth",
                            "peer", "name", DEVICE, "netns", str(second)], check=True)
            for name in (one, two):
                self._processes[name].stdin.write("go\n")
                self._processes[name].stdin.flush()
            for name in (one, two):
                self._wait_for_sshd(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends both hosts with everything that runs in them."""
        for process in self._processes.values():
            process.kill()  # its child, the first process of the namespace, is killed with it
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def _write_files(self):
        user = pwd.getpwuid(os.geteuid()).pw_name
        keys = {name: self.folder / f"host.{name}" for name in ADDRESS} | {"key": self.key, "wrong": self.wrong_key}
        for path in keys.values():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
        (self.folder / "authorized").write_text((self.folder / "key.pub").read_text())
        known = [f"[{place}]:{PORT[name]} " + (self.folder / f"host.{name}.pub").read_text()
                 for name in ADDRESS for place in (name, ADDRESS[name])]
        (self.folder / "known").write_text("".join(known))
        for own in ADDRESS:  # a host's own name is 127.0.1.1, as in Debian's installer
            places = {name: "127.0.1.1" if name == own else address for name, address in ADDRESS.items()}
            text = "".join(f"{place} {name} {self.called[name]}\n" for name, place in places.items())
            text = "127.0.0.1 localhost\n" + text
            (self.folder / f"hosts.{own}").write_text(text)
        (self.folder / "ssh").mkdir()
        others = "".join(f"Host {called}\n  HostName {name}\n  Port {PORT[name]}\n" for name, called in self.called.items()
                         if called != name)
        text = SSH_CONFIG.format(folder=self.folder, user=user, others=others, **PORT)
        (self.folder / "ssh" / "ssh_config").write_text(text)
        for name, address in ADDRESS.items():
            (self.folder / f"sshd.{name}.config").write_text(
                SSHD_CONFIG.format(port=PORT[name], address=address, folder=self.folder, name=name, user=user))

    def _start(self, name):
        environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "HOME": os.path.expanduser("~"), "NAME": name,
                       "CALLED": self.called[name],
                       "FOLDER": str(self.folder), "ADDRESS": ADDRESS[name], "DEVICE": DEVICE, "SSHD": sshd()}
        process = subprocess.Popen(["unshare", *SPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", INIT],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                   preexec_fn=_die_with_parent)
        self._processes[name] = process
        if process.stdout.readline() != "ready\n":
            raise OSError(f"host {name} did not start")
        self._pids[name] = self.inner(process)

    def _wait_for_sshd(self, name):
        log = self.folder / f"sshd.{name}.log"

        def listens():
            return log.exists() and "Server listening" in log.read_text()
        if not wait_until(listens, START_S):
            raise OSError(f"sshd of {name}: {log.read_text() if log.exists() else 'no word'}")
        self._own[name] = set(self.left(name))

    def inside(self, name, *words, cwd=None):
        """Returns the arguments that run a command on a host."""
        there = ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd)] if cwd else []
        return ["nsenter", "-t", str(self._pids[name]), "--net", "--uts", "--ipc", "--mount", "--pid", *there,
                *map(str, words)]

    def run(self, name, *words, cwd=None, **more):
        """Runs a command on a host to its end."""
        more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True} | more
        return subprocess.run(self.inside(name, *words, cwd=cwd), **more)

    @staticmethod
    def inner(process):
        """Returns the process id, outside the namespace, of the command that inside() started."""
        return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])

    def left(self, name):
        """Returns {process id: command} of a host's processes, without those that ran at the start."""
        space = os.readlink(f"/proc/{self._pids[name]}/ns/pid")
        found = {}
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/pid") == space:
                    command = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
                    found[int(entry)] = command.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has ended
        return {pid: words for pid, words in found.items() if words and pid not in self._own[name]}

    def link(self, name, state):
        """Sets a host's link `up` or `down`. Both hosts then forget the other's address. A host that looks for an address
        while the link is down gives up after 3 s, and a connection that it begins just before that has no route."""
        self.run(name, "ip", "link", "set", DEVICE, state, check=True)
        for host in self._pids if state == "up" else ():
            self.run(host, "ip", "neigh", "flush", "dev", DEVICE, check=True)


def main():
    """Runs a command on w0, for example `two_hosts.py sh -c 'ssh -i $KEY w1 hostname'`, for manual inspection."""
    import tempfile
    if said := problem():
        print(f"two_hosts.py: {said}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="hetu-hosts-") as folder, TwoHosts(folder) as hosts:
        started = time.monotonic()
        code = subprocess.run(hosts.inside("w0", *sys.argv[1:]), env=dict(os.environ, KEY=str(hosts.key))).returncode
        print(f"status {code} after {time.monotonic() - started:.1f} s", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main())
