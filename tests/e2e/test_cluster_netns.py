"""The cluster under faults: real processes on machines made of network namespaces (netlab).

One lab of three machines on a switch goes through the faults in turn; after each of them there is one master, all agree,
and the instance that was wanted before is still wanted and ready. Smaller labs follow for what needs a network of its own.
"""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

import harness
import netlab

WHY = netlab.missing(nft=True)
pytestmark = pytest.mark.skipif(bool(WHY), reason=str(WHY))
TUN = not netlab.missing(linkem=True)
need_tun = pytest.mark.skipif(not TUN, reason=str(netlab.missing(linkem=True)))
TIMEOUT_MS = 2000
LONG = 60  # seconds; conditions come in a few, on a machine that does other things too


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    d = tmp_path_factory.mktemp("models")
    subprocess.run([harness.MKMODEL, "--ctx", "256", str(d / "tiny.gguf")], check=True)
    return str(d)


def place(node, min_nodes=1):
    status, r = node.request("/place_instance", {"model_id": "tiny", "min_nodes": min_nodes})
    assert status == 200, r
    return r["instance_id"]


def view(node):
    """What all nodes must agree on."""
    s = node.state()
    return (s["master"], sorted(x["id"] for x in s["nodes"] if x["state"] in ("self", "live")),
            {k: [(r["node"], r["layers"]) if "layers" in r else str(r) for r in ranks(v)] for k, v in s["instances"].items()})


def ranks(instance):
    return instance.get("ranks") or instance.get("shards") or []


def ready(node, instance):
    return node.state()["instances"][instance]["status"] == "ready"


def settled(nodes, instances=(), ids=None):
    """All of these and nobody else are live for each of them, they follow the same one of them, want the same, and it runs."""
    ids = sorted(ids or [n.id() for n in nodes])
    for n in nodes:
        n.wait(lambda n: view(n)[1] == ids and view(n)[0] in ids, LONG, f"cluster of {len(ids)} with a master at {n.name}")
        n.wait(lambda n: set(n.state()["instances"]) == set(instances), LONG, f"wanted: {list(instances)} at {n.name}")
        for i in instances:
            n.wait(lambda n: ready(n, i), LONG, f"instance {i} ready at {n.name}")
    nodes[0].wait(lambda _: len({str(view(n)) for n in nodes}) == 1, LONG, "agreement")
    for n in nodes:  # by the others' own word too
        n.wait(lambda n: {x["follows"] for x in n.state()["nodes"] if x["state"] in ("self", "live")} == {n.master()}, LONG, "one master")
    return view(nodes[0])[0]


def lost(nodes, who):
    for n in nodes:
        n.wait(lambda n: who not in view(n)[1], LONG, f"loss of {who} at {n.name}")


@pytest.fixture(scope="module")
def three(models):
    with netlab.Lab() as lab:
        switch = lab.switch()
        nodes = []
        for i, name in enumerate("abc"):
            m = lab.machine(name, ipv6=False)
            cable = m.plug(switch, f"10.9.0.{i + 1}/24", link="" if TUN else None)
            nodes.append(m.node("--node-timeout", str(TIMEOUT_MS), models=models))
            nodes[-1].cable = cable
        for n in nodes:
            n.wait_up()
        for n in nodes:
            n.wait(lambda n: len(n.live()) == 3, LONG, "three nodes")
            n.known_id = n.id()
        settled(nodes)
        lab.instance = place(nodes[0], 2)
        yield lab, nodes
        problems = [f"{n.name}: {line}" for n in nodes for line in n.output().splitlines() if "runtime error" in line or "assert" in line.lower()]
        assert not problems


def others(nodes, n):
    return [x for x in nodes if x is not n]


def by_id(nodes, id_):
    return next(n for n in nodes if n.known_id == id_)


def test_found_by_multicast(three):
    """Nobody was told of anybody."""
    lab, nodes = three
    settled(nodes, [lab.instance])
    for n in nodes:
        assert n.live() == ["a", "b", "c"]


@pytest.mark.parametrize("turn", range(3))
def test_kill_and_return_as_the_same_node(three, turn):
    """First the master, then the two that were not."""
    lab, nodes = three
    master = settled(nodes, [lab.instance])
    victim = by_id(nodes, master) if turn == 0 else by_id(nodes, lab.order[turn - 1])
    if turn == 0:
        lab.order = [n.known_id for n in nodes if n is not victim]
    rest = others(nodes, victim)
    victim.kill()
    lost(rest, victim.known_id)
    after = settled(rest, [lab.instance])
    if victim.known_id != master:
        assert after == master, "the loss of another node must not change the master"
    victim.start().wait_up()
    assert victim.id() == victim.known_id
    assert settled(nodes, [lab.instance]) == after, "a node that comes back must not depose the master"


def test_no_ghosts(three):
    """A node that restarts again and again is one node: the list never grows beyond three."""
    lab, nodes = three
    settled(nodes, [lab.instance])
    for _ in range(2):
        nodes[2].kill()
        nodes[2].start()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert len(nodes[0].state()["nodes"]) <= 3
            time.sleep(0.05)
    settled(nodes, [lab.instance])
    for n in nodes:
        assert len(n.state()["nodes"]) == 3


def test_stopped_and_continued(three):
    """SIGSTOP for longer than the timeout: lost, then the same node again; of the master too."""
    lab, nodes = three
    master = settled(nodes, [lab.instance])
    for victim in (by_id(nodes, master), others(nodes, by_id(nodes, master))[0]):
        rest = others(nodes, victim)
        victim.p.send_signal(netlab.signal.SIGSTOP)
        lost(rest, victim.known_id)
        after = settled(rest, [lab.instance])
        victim.p.send_signal(netlab.signal.SIGCONT)
        assert settled(nodes, [lab.instance]) == after


def test_partition_and_heal(three):
    """The master alone against the two others, its cable still up: silence is all there is."""
    lab, nodes = three
    master = settled(nodes, [lab.instance])
    alone = by_id(nodes, master)
    rest = others(nodes, alone)
    alone.machine.nft("input iif != lo drop; output oif != lo drop")
    lost(rest, alone.known_id)
    after = settled(rest, [lab.instance])
    alone.wait(lambda n: view(n)[1] == [alone.known_id], LONG, "loneliness")
    gone = place(rest[0])
    status, r = rest[0].request(f"/instance/{gone}", method="DELETE")
    assert status == 200, r
    alone.machine.nft("")
    assert settled(nodes, [lab.instance]) == after


def test_deleted_stays_deleted(three):
    """Two sides of a partition, each with something new and something deleted; and nobody's old state brings it back."""
    lab, nodes = three
    settled(nodes, [lab.instance])
    x = place(nodes[0])
    settled(nodes, [lab.instance, x])
    alone, rest = nodes[2], nodes[:2]
    alone.machine.nft("input iif != lo drop; output oif != lo drop")
    lost(rest, alone.known_id)
    lost([alone], nodes[0].known_id)
    alone.wait(lambda n: n.master() == n.known_id, LONG, "a master of its own")  # its term is the higher one now
    status, r = rest[0].request(f"/instance/{x}", method="DELETE")
    assert status == 200, r
    rest[1].wait(lambda n: x not in n.state()["instances"], LONG, "end of it")
    alone.kill()
    alone.machine.nft("")
    alone.start().wait_up()  # from a disk on which x is wanted
    settled(nodes, [lab.instance])


@need_tun
def test_slow_and_lossy(three):
    """200 ms each way between any two, 5 % of the frames lost: slow, but a cluster."""
    lab, nodes = three
    settled(nodes, [lab.instance])
    for n in nodes:
        n.cable.set("both delay=100ms loss=2.5")
    try:
        settled(nodes, [lab.instance])
        x = place(nodes[1])
        settled(nodes, [lab.instance, x])
        assert nodes[2].request(f"/instance/{x}", method="DELETE")[0] == 200
        settled(nodes, [lab.instance])
        victim = nodes[1]
        victim.kill()
        lost(others(nodes, victim), victim.known_id)
        victim.start().wait_up()
        settled(nodes, [lab.instance])
    finally:
        for n in nodes:
            n.cable.set("both reset")
    settled(nodes, [lab.instance])


def test_plug_pulled_and_put_back(three):
    lab, nodes = three
    settled(nodes, [lab.instance])
    nodes[1].cable.pull()
    lost(others(nodes, nodes[1]), nodes[1].known_id)
    settled(others(nodes, nodes[1]), [lab.instance])
    nodes[1].cable.put_back()
    settled(nodes, [lab.instance])


def test_address_change(three):
    lab, nodes = three
    settled(nodes, [lab.instance])
    c = nodes[2]
    c.machine.ip("addr", "del", "10.9.0.3/24", "dev", "eth0")
    c.machine.ip("addr", "add", "10.9.0.33/24", "dev", "eth0")
    settled(nodes, [lab.instance])

    def address(n):
        return next(x["address"] for x in n.state()["nodes"] if x["id"] == c.known_id)

    for n in nodes[:2]:
        n.wait(lambda n: address(n) == "10.9.0.33:52416", LONG, f"the new address at {n.name}")
    settled(nodes, [lab.instance])


def test_whole_cluster_restarts(three):
    """Everybody is killed at once; what was wanted comes back from the disks."""
    lab, nodes = three
    settled(nodes, [lab.instance])
    for n in nodes:
        n.kill()
    for n in nodes:
        n.start()
    for n in nodes:
        n.wait_up()
        assert n.id() == n.known_id
    settled(nodes, [lab.instance])


# What needs a network of its own.

NO_MULTICAST = "input udp dport 5353 drop; output udp dport 5353 drop"


def test_one_peer_makes_a_full_mesh():
    """Multicast is dropped everywhere. b knows a, c knows b, d is known by its address to nobody but c's --peer."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        m = [lab.machine(x) for x in "abcd"]
        for i, x in enumerate(m):
            x.plug(switch, f"10.9.0.{i + 1}/24")
            x.nft(NO_MULTICAST)
        nodes = [m[0].node(), m[1].node(peers=["10.9.0.1"]), m[3].node(), m[2].node(peers=["10.9.0.2", "10.9.0.4"])]
        for n in nodes:
            n.wait_up()
        settled(nodes)
        status, out, _ = nodes[0].skein("doctor", "--json")
        found = json.loads(out)["findings"]
        assert status == 1 and any(f["check"] == "multicast" and f["level"] == "broken" and f["fix"] for f in found), found


def test_copied_disk():
    """One data folder on two machines: one of them becomes another node, and both are in the cluster."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(switch, "10.9.0.1/24")
        b.plug(switch, "10.9.0.2/24")
        first = a.node().wait_up()
        home = os.path.join(lab.folder, "copy")
        shutil.copytree(first.home, home)
        second = b.node(home=home, peers=["10.9.0.1"])
        second.wait(lambda n: len(n.live()) == 2 and len(first.live()) == 2, LONG, "two nodes")
        assert first.id() != second.id()
        settled([first, second])


def test_clusters_stay_apart():
    """Two names on one switch, and one with another secret: none of them sees the others, and both sides say why."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        m = [lab.machine(x) for x in "abcde"]
        for i, x in enumerate(m):
            x.plug(switch, f"10.9.0.{i + 1}/24")
        fast = ["--node-timeout", "2000"]
        a = m[0].node("--namespace", "red", "--join-key", "apple", *fast)
        b = m[1].node("--namespace", "red", "--join-key", "apple", *fast, peers=["10.9.0.1"])
        c = m[2].node("--namespace", "blue", "--join-key", "apple", *fast, peers=["10.9.0.1"])
        d = m[3].node("--namespace", "blue", "--join-key", "apple", *fast, peers=["10.9.0.3", "10.9.0.2"])
        e = m[4].node("--namespace", "red", "--join-key", "pear", *fast, peers=["10.9.0.1"])
        for n in (a, b, c, d, e):
            n.wait_up()
        settled([a, b])
        settled([c, d])
        e.wait(lambda n: "10.9.0.1" in n.output() and "join key" in n.output(), LONG, "refusal in the log of the refused")
        a.wait(lambda n: "refused" in n.output(), LONG, "refusal in the log of the one that refused")
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for seen, own in ((a.live() + b.live(), "ab"), (c.live() + d.live(), "cd"), (e.live(), "e")):
                assert set(seen) <= set(own), seen  # a pause of this machine may cost one of its own for a moment
            time.sleep(0.2)


def test_another_version_is_refused(models):
    """A node of the next protocol (a small program that speaks the bus): both versions in the reason, in skein nodes too."""
    fake = str(pathlib.Path(harness.SKEIN).parent / "fakepeer")
    with netlab.Lab() as lab:
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(b, "10.9.0.1/24", there=["10.9.0.2/24"])
        n = a.node(models=models).wait_up()
        x = place(n)
        r = subprocess.run(["ip", "netns", "exec", b.netns, fake, "10.9.0.1:52416", "99", "9.9-other"], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r
        n.wait(lambda n: n.state()["refused"], LONG, "word of the refused node")
        mine = n.state()["version"]
        for text in (r.stdout, n.skein("nodes")[1], n.output()):
            assert "99" in text and "9.9-other" in text and mine in text, text
        # Another build of the same protocol is welcome.
        r = subprocess.run(["ip", "netns", "exec", b.netns, fake, "10.9.0.1:52416", str(n.state()["nodes"][0]["protocol"]), "9.9-other"],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 3, r
        n.wait(lambda n: ready(n, x), LONG, "instance")


def test_ipv6_only_by_multicast():
    """Not even addresses of their own: what every interface has is enough."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        m = [lab.machine(x) for x in "ab"]
        for x in m:
            x.plug(switch)
        nodes = [x.node().wait_up() for x in m]
        settled(nodes)


def test_ipv6_only_by_peer():
    with netlab.Lab() as lab:
        switch = lab.switch()
        m = [lab.machine(x) for x in "abc"]
        for i, x in enumerate(m):
            x.plug(switch, f"fd00::{i + 1}/64")
            x.nft(NO_MULTICAST)
        nodes = [m[0].node(), m[1].node(peers=["[fd00::1]:52416"])]
        link_local = next(x for x in m[0].addresses("eth0") if x.startswith("fe80"))
        nodes.append(m[2].node(peers=[f"[{link_local}%eth0]:52416"]))
        for n in nodes:
            n.wait_up()
        settled(nodes)


def test_disk_full(models):
    """The state can't be written: said once, the node and the cluster go on, and it is written when there is room again."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        m = [lab.machine(x) for x in "ab"]
        for i, x in enumerate(m):
            x.plug(switch, f"10.9.0.{i + 1}/24")
        disk = lab.tmpfs(1 << 20)
        a = m[0].node("--node-timeout", "2000", models=models, home=os.path.join(disk, "a")).wait_up()
        b = m[1].node("--node-timeout", "2000", models=models, peers=["10.9.0.1"]).wait_up()
        settled([a, b])
        fill = pathlib.Path(disk, "fill")
        with open(fill, "wb", buffering=0) as f:
            try:
                while f.write(bytes(4096)):
                    pass
            except OSError:
                pass
        x = place(b)
        settled([a, b], [x])
        a.wait(lambda n: "No space left" in n.output(), LONG, "word of the full disk")
        assert a.p.poll() is None
        fill.unlink()
        y = place(b)
        settled([a, b], [x, y])
        b.kill()
        a.kill()
        a.start().wait_up()
        settled([a], [x, y])


def test_one_of_three_interfaces_routes():
    """Cables into nowhere, a host-only bridge, and one that works: the node joins, and that one is shown."""
    with netlab.Lab() as lab:
        switch, nowhere = lab.switch(), lab.switch("dead")
        a, c = lab.machine("a"), lab.machine("c")
        a.plug(switch, "10.9.0.1/24")
        c.plug(nowhere, "10.8.0.3/24")
        c.ip("link", "add", "docker0", "type", "bridge")
        c.device("docker0", "172.17.0.1/16")
        c.plug(switch, "10.9.0.3/24", dev="good0")
        na = a.node().wait_up()
        nc = c.node(peers=["10.8.0.1", "172.17.0.9", "10.9.0.1"]).wait_up()
        settled([na, nc])
        seen = next(x["address"] for x in na.state()["nodes"] if x["name"] == "c")
        host = seen.rsplit(":", 1)[0].strip("[]").split("%")[0]
        assert host in c.addresses("good0"), seen


def test_dead_peers_cost_nothing():
    """Twenty addresses where nobody is, where nobody listens, and where packets vanish: joined at once, idle afterwards."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(switch, "10.9.0.1/24")
        b.plug(switch, "10.9.0.2/24")
        b.nft("output ip daddr 10.9.0.64/26 drop")
        na = a.node().wait_up()
        dead = [f"10.9.0.{i}" for i in range(30, 40)] + [f"10.9.0.1:{5000 + i}" for i in range(5)] + [f"10.9.0.{i}" for i in range(70, 75)]
        nb = b.node(peers=[*dead, "10.9.0.1"]).wait_up()
        settled([na, nb])
        assert nb.live() == ["a", "b"]
        shares = []
        while not shares or (shares[-1] > 0.1 and len(shares) < 6):  # what starting it left to do may take some seconds
            before, start = cpu_ticks(nb.p.pid), time.monotonic()
            time.sleep(3)
            shares.append((cpu_ticks(nb.p.pid) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start))
        assert shares[-1] <= 0.1, f"shares of a core while idle: {shares}"


def cpu_ticks(pid):
    f = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(f[11]) + int(f[12])


def test_other_machines_need_the_key(models):
    """DELETE from another machine without a key changes nothing; nobody can at all while no key was set."""
    with netlab.Lab() as lab:
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(b, "10.9.0.1/24", there=["10.9.0.2/24"])
        n = a.node("--host", "*", "--api-key", "sesame", models=models).wait_up()
        x = place(n)
        n.wait(lambda n: ready(n, x), LONG, "instance")
        for how in ([], ["-H", "Authorization: Bearer wrong"]):
            for request in (["-X", "DELETE", f"http://10.9.0.1:52415/instance/{x}"],
                            ["-d", '{"model_id": "tiny"}', "http://10.9.0.1:52415/place_instance"]):
                assert b.sh("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *how, *request) == "401"
        assert list(n.state()["instances"]) == [x]
        for how, ok in (([], False), (["--api-key", "wrong"], False), (["--api-key", "sesame"], True)):  # the commands, too
            if ok:
                assert "gets no new work" in b.sh(harness.SKEIN, "drain", "a", "--host", "10.9.0.1", *how)
            else:
                assert not b.sh(harness.SKEIN, "drain", "a", "--host", "10.9.0.1", *how, ok=True)
        assert "gets work again" in b.sh("env", "SKEIN_API_KEY=sesame", harness.SKEIN, "undrain", "a", "--host", "10.9.0.1")
        done = b.sh("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer sesame", "-X", "DELETE",
                    f"http://10.9.0.1:52415/instance/{x}")
        assert done == "200"
        n.wait(lambda n: not n.state()["instances"], LONG, "end of it")


def findings(node, *args):
    """doctor's words by level: {"broken": ["reach", ...]}, and its exit status."""
    status, out, err = node.skein("doctor", "--json", *(args or ["--listen", "0"]))
    by_level = {}
    for f in json.loads(out)["findings"]:
        by_level.setdefault(f["level"], []).append(f["check"])
        assert f["level"] == "fine" or f["why"] or f["fix"] or f["check"] == "gpu", f
    return status, by_level


def test_doctor():
    """What keeps three machines apart is found from either side, with and without a running node."""
    with netlab.Lab() as lab:
        switch = lab.switch()
        a, b, c, d = (lab.machine(x, ipv6=False) for x in "abcd")
        for i, x in enumerate((a, b, c, d)):
            x.plug(switch, f"10.9.0.{i + 1}/24")
        na = a.node("--namespace", "red", "--join-key", "apple").wait_up()
        nb = b.node("--namespace", "red", "--join-key", "apple").wait_up()
        nc = c.node("--namespace", "blue").wait_up()
        settled([na, nb])
        status, found = findings(na, "--listen", "2500")
        assert set(found.get("broken", [])) <= {"disk"} and "reach" in found["fine"] and "namespace" in found["note"], found
        nd = d.node("--namespace", "red", "--join-key", "pear").wait_up()
        status, found = findings(nd, "--listen", "0", "--peer", "10.9.0.1")
        assert status == 1 and "join" in found["broken"], found
        nd.stop()
        status, found = findings(nd, "--listen", "0", "--peer", "10.9.0.1")
        assert set(found.get("broken", [])) <= {"disk"} and "reach" in found["fine"] and "node" in found["note"], found
        status, found = findings(nd, "--listen", "0", "--peer", "10.9.0.1:5", "--peer", "192.0.2.1")
        assert status == 1 and found["broken"].count("reach") == 2, found
        b.nft("input iif != lo tcp dport 52416 accept; input iif != lo ct state established accept; input iif != lo ip protocol tcp drop")
        status, found = findings(na)
        assert "ports" in found["warning"], found
        b.nft("input iif != lo drop")
        status, found = findings(nd, "--listen", "0", "--peer", "10.9.0.2")
        assert status == 1 and "reach" in found["broken"], found
        nc.stop()
        c.ip("link", "set", "eth0", "down")
        status, found = findings(nc)
        assert status == 1 and "interface" in found["broken"], found


@need_tun
def test_doctor_finds_the_switch_that_drops_large_frames():
    with netlab.Lab() as lab:
        a, b = (lab.machine(x) for x in "ab")
        cable = a.plug(b, "10.9.0.1/24", there=["10.9.0.2/24"], link="", mtu=9000)
        nb = b.node().wait_up()
        na = a.node().wait_up()
        settled([na, nb])
        assert "mtu" not in findings(na)[1].get("broken", [])
        cable.set("both mtu=1500")
        status, found = findings(na)
        assert status == 1 and "mtu" in found["broken"] and "ports" not in found.get("warning", []), found
