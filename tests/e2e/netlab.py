"""Machines, switches and cables for tests: network namespaces of this process, gone when it is.

    with Lab() as lab:
        switch = lab.switch()
        a, b = (lab.machine(x) for x in "ab")
        a.plug(switch, "10.9.0.1/24")                              # veth: as fast as the kernel
        cable = b.plug(switch, "10.9.0.2/24", link="delay=200ms")  # linkem: may be changed while it runs
        n = a.node().wait_up()
        cable.set("both delay=1ms loss=5")

Needs root, ip and, for cables with properties, /dev/net/tun and build/linkem: `missing()` says what is not there.
"""

import ctypes
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import harness

LINKEM = str(pathlib.Path(harness.SKEIN).parent / "linkem")
CLONE_NEWNET = 0x40000000
PREFIX = "sknet"
libc = ctypes.CDLL(None, use_errno=True)
numbers = itertools.count(1)


def missing(linkem=False, nft=False):
    """Why there can be no lab here, or None."""
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    for tool in ["ip", *(["nft"] if nft else [])]:
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = f"{PREFIX}{os.getpid()}probe"
    r = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if r.returncode:
        return f"no network namespace can be made: {r.stderr.strip()}"
    why = None
    if subprocess.run(["ip", "-n", probe, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"], capture_output=True).returncode:
        why = "this kernel has no veth devices"
    elif subprocess.run(["ip", "-n", probe, "link", "add", "br0", "type", "bridge"], capture_output=True).returncode:
        why = "this kernel has no bridges"
    elif nft and subprocess.run(["ip", "netns", "exec", probe, "nft", "add table inet x"], capture_output=True).returncode:
        why = "this kernel has no nftables"
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    if linkem and not why:
        if not os.path.exists("/dev/net/tun"):
            why = "there is no /dev/net/tun"
        elif not os.path.exists(LINKEM):
            why = f"{LINKEM} is not built"
    return why


def sh(*cmd, ok=False):
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode and not ok:
        raise AssertionError(f"{' '.join(cmd)}: {r.stderr.strip() or r.stdout.strip()}")
    return r.stdout


def die_with_parent():
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: of the thread that started it, so labs are made by the main one


class inside:
    """This thread in a machine's network for the length of a with block."""

    def __init__(self, netns):
        self.netns = netns

    def __enter__(self):
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.netns}", os.O_RDONLY)
        try:
            if libc.setns(there, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {self.netns}")
        finally:
            os.close(there)

    def __exit__(self, *_):
        libc.setns(self.home, CLONE_NEWNET)
        os.close(self.home)


class Cable:
    """One machine's leg to a switch or to another machine. ends: (netns, device), the machine's own first."""

    def __init__(self, ends, control=None):
        self.ends, self.control = ends, control

    def ask(self, words):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            s.connect(self.control)
            s.send(words.encode())
            reply = s.recv(4096).decode()
        if reply.startswith("error"):
            raise AssertionError(reply)
        return reply

    def set(self, words):
        """'both delay=200ms loss=5', 'ab rate=125M', ...: tools/linkem_line.h lists the words. Only of linkem cables."""
        return self.ask(words)

    def stats(self):
        """{'ab': {...}, 'ba': {...}}: counters and settings as text."""
        return {line.split()[0]: dict(w.split("=", 1) for w in line.split()[1:]) for line in self.ask("stats").splitlines()}

    def pull(self):
        """The plug is out: the machine's own device loses its carrier too."""
        if self.control:
            return self.set("both carrier=0")
        sh("ip", "-n", self.ends[1][0], "link", "set", self.ends[1][1], "down")

    def put_back(self):
        if self.control:
            return self.set("both carrier=1")
        sh("ip", "-n", self.ends[1][0], "link", "set", self.ends[1][1], "up")


class Machine:
    def __init__(self, lab, name, ipv6=True):
        self.lab, self.name, self.netns = lab, name, f"{lab.prefix}{name}"
        self.n_devices = 0
        sh("ip", "netns", "add", self.netns)
        self.sh("sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0", ok=True)
        if not ipv6:
            self.sh("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1", ok=True)
        sh("ip", "-n", self.netns, "link", "set", "lo", "up")

    def sh(self, *cmd, ok=False):
        return sh("ip", "netns", "exec", self.netns, *cmd, ok=ok)

    def ip(self, *args):
        return sh("ip", "-n", self.netns, *args)

    def addresses(self, dev):
        """All of a device's, without their prefix lengths."""
        return [line.split()[3].split("/")[0] for line in self.ip("-o", "addr", "show", "dev", dev).splitlines()]

    def nft(self, rules):
        """Replaces this machine's rules: 'input ip daddr 224.0.0.0/4 drop; output ...'. '' takes all away."""
        text = "flush ruleset\n"
        if rules:
            text += "table inet lab {\n"
            for hook in ("input", "output", "forward"):
                lines = [r.strip()[len(hook):] for r in rules.split(";") if r.strip().startswith(hook)]
                text += f"chain {hook} {{ type filter hook {hook} priority 0; {''.join(f'{x};' for x in lines)} }}\n"
            text += "}\n"
        r = subprocess.run(["ip", "netns", "exec", self.netns, "nft", "-f", "-"], input=text, capture_output=True, text=True)
        if r.returncode:
            raise AssertionError(f"nft: {r.stderr}\n{text}")

    def popen(self, cmd, **kw):
        # Machines share no memory: ranks that could open each other's would send nothing over the cable.
        own = ["sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$0" "$@"', *cmd]
        p = subprocess.Popen(["ip", "netns", "exec", self.netns, *own], preexec_fn=die_with_parent, **kw)
        self.lab.processes.append(p)
        return p

    def device(self, dev, *addresses):
        for a in addresses:
            self.ip("addr", "add", a, "dev", dev, *(["nodad"] if ":" in a else []))
        self.ip("link", "set", dev, "up")

    def plug(self, other, *addresses, dev=None, link=None, mtu=1500, there=(), linkem_args=()):
        """A cable from here to a switch or machine. link: linkem's words ('' for a perfect cable), None: veth.
        there: addresses of the other end when that is a machine."""
        dev = dev or f"eth{self.n_devices}"
        self.n_devices += 1
        far = f"{self.name}{dev}"[:15] if isinstance(other, Switch) else f"eth{other.n_devices}"
        other.n_devices += 1
        if link is None:
            sh("ip", "-n", self.netns, "link", "add", dev, "mtu", str(mtu), "type", "veth", "peer", "name", far, "mtu", str(mtu), "netns", other.netns)
            cable = Cable(((self.netns, dev), (other.netns, far)))
        else:
            cable = self.lab.linkem((self.netns, dev), (other.netns, far), link, mtu, linkem_args)
        if isinstance(other, Switch):
            sh("ip", "-n", other.netns, "link", "set", far, "master", "br0", "up")
        else:
            other.device(far, *there)
        self.device(dev, *addresses)
        return cable

    def node(self, *args, **kw):
        return LabNode(self, *args, **kw)


class Switch(Machine):
    def __init__(self, lab, name):
        super().__init__(lab, name)
        self.ip("link", "add", "br0", "mtu", "9000", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
        self.ip("link", "set", "br0", "up")


class LabNode(harness.Node):
    """skein up on a machine, with the usual ports. Stopping and starting again keeps its data folder."""

    def __init__(self, machine, *args, peers=(), env=None, name=None, home=None, models=None):
        self.machine, self.args, self.name = machine, args, name or machine.name
        self.port, self.bus = 52415, 52416
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = home or os.path.join(machine.lab.folder, f"{machine.name}-{next(numbers)}")
        os.makedirs(self.home, exist_ok=True)
        self.peers = [str(p) for p in peers]
        self.env = dict(os.environ, SKEIN_OFFLINE="1", SKEIN_NO_MEASURE="1", HOME=machine.lab.folder)
        self.env.pop("SKEIN_HOME", None)
        if models:
            self.env["SKEIN_MODELS_DIRS"] = models
        self.env.update(env or {})
        self.log = open(f"{self.home}.txt", "a+")
        machine.lab.nodes.append(self)
        self.start()

    def start(self, *more):
        cmd = [harness.SKEIN, "up", "--name", self.name, "--data-dir", self.home]
        for p in self.peers:
            cmd += ["--peer", p]
        self.started_at = time.monotonic()
        self.p = self.machine.popen(cmd + list(self.args) + list(more), stdout=self.log, stderr=self.log, env=self.env)
        return self

    def request(self, *args, **kw):
        with inside(self.machine.netns):
            return super().request(*args, **kw)

    def skein(self, *args, timeout=60, env=None):
        """Another command on this machine: (status, stdout, stderr)."""
        r = subprocess.run(["ip", "netns", "exec", self.machine.netns, harness.SKEIN, *args], capture_output=True, text=True,
                           timeout=timeout, env=self.env | (env or {}), stdin=subprocess.DEVNULL)
        return r.returncode, r.stdout, r.stderr

    def id(self):
        return self.request("/node_id")[1]

    def live(self):
        """Names of the nodes that this one sees, itself included."""
        return sorted(x["name"] for x in self.state()["nodes"] if x["state"] in ("self", "live"))

    def master(self):
        return self.state()["master"]

    def kill(self):
        self.p.kill()
        self.p.wait()

    def stop(self, sig=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGCONT)
            self.p.send_signal(sig)
            try:
                self.p.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} did not end within 30 s of the signal:\n{self.output()[-2000:]}")


class Lab:
    def __init__(self):
        # PR_SET_PDEATHSIG follows the thread: what a worker thread starts would end with that thread.
        assert threading.current_thread() is threading.main_thread(), "labs belong to the main thread"
        self.prefix = f"{PREFIX}{os.getpid()}x{next(numbers)}"
        self.folder = tempfile.mkdtemp(prefix="skein-lab-")
        self.machines, self.processes, self.nodes, self.mounts = [], [], [], []
        sweep()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def machine(self, name, ipv6=True):
        m = Machine(self, name, ipv6)
        self.machines.append(m)
        return m

    def switch(self, name="sw"):
        s = Switch(self, name)
        self.machines.append(s)
        return s

    def linkem(self, a, b, words="", mtu=1500, args=()):
        """A cable between two new devices, each (netns, name)."""
        control = os.path.join(self.folder, f"cable{next(numbers)}")
        cmd = [LINKEM, "--control", control, "--mtu", str(mtu), "--both", words, *args, ":".join(a), ":".join(b)]
        p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.processes.append(p)
        if "connected" not in p.stdout.readline():
            raise AssertionError(p.stderr.read())
        return Cable((a, b), control)

    def tmpfs(self, bytes_):
        path = os.path.join(self.folder, f"disk{next(numbers)}")
        os.makedirs(path)
        sh("mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", path)
        self.mounts.append(path)
        return path

    def close(self):
        """Takes all of it down, whatever fails on the way."""
        for p in self.processes:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.terminate()
        end = time.monotonic() + 10
        for p in self.processes:
            try:
                p.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for n in self.nodes:
            n.log.close()
        for m in self.machines:
            sh("ip", "netns", "del", m.netns, ok=True)
        for path in self.mounts:
            sh("umount", path, ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def sweep():
    """Namespaces of test processes that were killed before they could clean up (their processes died with them)."""
    for line in sh("ip", "netns", "list", ok=True).splitlines():
        m = re.match(rf"({PREFIX}(\d+)\S*)", line)
        if m and not os.path.exists(f"/proc/{m.group(2)}"):
            sh("ip", "netns", "del", m.group(1), ok=True)
