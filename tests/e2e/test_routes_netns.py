"""Discovery beside the system's own responder, and the choice among several networks between two machines."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

import netlab

WHY = netlab.missing()
pytestmark = pytest.mark.skipif(bool(WHY), reason=str(WHY))
LONG = 60


def route(node, name):
    return next((x.get("route") or {} for x in node.state()["nodes"] if x["name"] == name), {})


def both(nodes):
    for n in nodes:
        n.wait(lambda n: n.live() == ["a", "b"], LONG, f"both at {n.name}")


def over(nodes, dev):
    """Both sides send over this device."""
    for n, other in zip(nodes, ("b", "a")):
        n.wait(lambda n: route(n, other).get("interface") == dev, LONG, f"{dev} at {n.name}")


def test_ethernet_before_wifi_and_back():
    """Started over Wi-Fi, the two move to the cable; when that is pulled they go on over Wi-Fi and lose nobody."""
    with netlab.Lab() as lab:
        wired, air = lab.switch("wired"), lab.switch("air")
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(air, "10.7.0.1/24", dev="wlan0")
        b.plug(air, "10.7.0.2/24", dev="wlan0")
        na = a.node("--no-discovery").wait_up()
        nb = b.node("--no-discovery", peers=["10.7.0.1"]).wait_up()
        both([na, nb])
        over([na, nb], "wlan0")
        assert route(na, "b")["kind"] == "wifi"
        cable = a.plug(wired, "10.9.0.1/24", dev="eth0")
        b.plug(wired, "10.9.0.2/24", dev="eth0")
        over([na, nb], "eth0")
        assert route(na, "b")["kind"] == "ethernet"
        assert "over eth0 (ethernet)" in na.skein("nodes")[1]
        time.sleep(1)
        cable.pull()
        over([na, nb], "wlan0")
        both([na, nb])
        for n in (na, nb):
            assert "node lost" not in n.output(), n.output()
        time.sleep(6)  # the way over the cable has been given up
        cable.put_back()
        over([na, nb], "eth0")


def test_interface_that_is_asked_for():
    """--interface wins over the kind: only that one is announced and dialled."""
    with netlab.Lab() as lab:
        wired, air = lab.switch("wired"), lab.switch("air")
        nodes = []
        for i, name in enumerate("ab"):
            m = lab.machine(name)
            m.plug(wired, f"10.9.0.{i + 1}/24", dev="eth0")
            m.plug(air, f"10.7.0.{i + 1}/24", dev="wlan0")
            nodes.append(m.node("--interface", "wlan0"))
        both([n.wait_up() for n in nodes])
        over(nodes, "wlan0")
        time.sleep(3)
        over(nodes, "wlan0")
        assert [x for n in nodes[0].state()["nodes"] for x in n["addresses"] if x.startswith("10.9.")] == []


class Avahi:
    """avahi-daemon on a machine, with a message bus of its own."""

    def __init__(self, machine, folder, **server):
        self.machine = machine
        self.socket = f"{folder}/bus"
        self.env = dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS=f"unix:path={self.socket}")
        conf = pathlib.Path(folder, "dbus.conf")
        conf.write_text(f"""<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
            "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><type>system</type><listen>unix:path={self.socket}</listen><auth>EXTERNAL</auth>
            <policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
            </busconfig>""")
        machine.popen(["dbus-daemon", f"--config-file={conf}", "--nofork", "--nopidfile"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not os.path.exists(self.socket) and time.monotonic() < end:
            time.sleep(0.05)
        conf = pathlib.Path(folder, "avahi.conf")
        # The folder of its PID file is the system's: a private mount for the daemon.
        words = "".join(f"{k.replace('_', '-')}={v}\n" for k, v in server.items())
        conf.write_text(f"[server]\nhost-name={machine.name}\nenable-dbus=yes\n{words}")
        run = f"mount -t tmpfs none /run/avahi-daemon && exec avahi-daemon --no-chroot --no-drop-root --no-rlimits -f {conf}"
        os.makedirs("/run/avahi-daemon", exist_ok=True)
        self.log = open(f"{folder}/avahi.log", "w+")
        self.p = machine.popen(["unshare", "-m", "sh", "-c", run], env=self.env, stdout=self.log, stderr=self.log)

    def browse(self):
        r = subprocess.run(["ip", "netns", "exec", self.machine.netns, "avahi-browse", "-rpt", "_exo._tcp"], capture_output=True, text=True,
                           env=self.env, timeout=60)
        return r.stdout


need_avahi = pytest.mark.skipif(not all(map(shutil.which, ("avahi-daemon", "avahi-browse", "dbus-daemon", "unshare"))),
                                reason="avahi-daemon, avahi-utils and dbus are not all installed")


@need_avahi
def test_beside_a_running_daemon(tmp_path):
    """On a machine with avahi-daemon the nodes are found, and its tools list them."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(switch, "10.9.0.1/24")
        b.plug(switch, "10.9.0.2/24")
        daemon = Avahi(a, str(tmp_path))
        na = a.node("--namespace", "beside").wait_up()
        nb = b.node("--namespace", "beside").wait_up()
        both([na, nb])
        ids = (na.id(), nb.id())
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            shown = daemon.browse()
            rows = [x for x in shown.splitlines() if x.startswith("=") and '"ns=beside"' in x]
            if all(any(f'"id={i}"' in x for x in rows) for i in ids):
                break
        else:
            raise AssertionError(shown + pathlib.Path(daemon.log.name).read_text())
        assert any('"bus=52416"' in x and '"api=52415"' in x and '"boot=' in x and '"v=' in x for x in rows), rows


@need_avahi
def test_a_daemon_that_shares_nothing(tmp_path):
    """disallow-other-stacks: discovery is off there, and says so; the node works by --peer."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(switch, "10.9.0.1/24")
        b.plug(switch, "10.9.0.2/24")
        daemon = Avahi(a, str(tmp_path), disallow_other_stacks="yes")
        end = time.monotonic() + 20
        while "Server startup complete" not in pathlib.Path(daemon.log.name).read_text() and time.monotonic() < end:
            time.sleep(0.1)
        na = a.node(peers=["10.9.0.2"]).wait_up()
        nb = b.node().wait_up()
        both([na, nb])
        assert "disallow-other-stacks" in na.state()["discovery"] and nb.state()["discovery"] == ""
