"""What nodes show of their hardware and links, the event stream, and who may change a cluster over HTTP."""

import json
import re
import socket
import subprocess
import threading
import urllib.request

import netlab
import pytest
from harness import SKEIN, Node, cluster

MEASURE = {"SKEIN_NO_MEASURE": "0"}


def own_address():
    """An address of this machine that is not loopback's, or None."""
    out = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return next((a for a in out if "." in a and not a.startswith("127.")), None)


def listen(node, lines, last=None):
    """Collects the stream's lines on a thread until the node ends."""
    r = urllib.request.Request(node.url + "/events", headers={"Last-Event-ID": last} if last else {})

    def read():
        try:
            with urllib.request.urlopen(r, timeout=60) as f:
                for line in f:
                    lines.append(line.decode().rstrip("\n"))
        except OSError:
            pass

    t = threading.Thread(target=read, daemon=True)
    t.start()
    return t


def events(lines):
    return [json.loads(x[6:]) for x in list(lines) if x.startswith("data: ")]


def test_speeds_and_links_of_two_nodes():
    a, b = cluster(2, env=MEASURE)
    try:
        def known(n):
            s = n.state()
            ok = len([x for x in s["links"] if x.get("rtt_us") and x.get("bandwidth_bytes_per_s")]) == 2
            return ok and all(x.get("read_bytes_per_s") for x in s["nodes"]) and s

        s = a.wait(known, 120, "speeds and links")
        for n in s["nodes"]:
            assert n["int8_ops_per_s"] > 1e6 and n["f32_ops_per_s"] > 1e6
            assert n["isa"] in n["isas"].split()
            assert n["capabilities"]["device"] == "cpu" and n["capabilities"]["memory"] == n["memory"]
            assert n["disk"] >= n["disk_available"] > 0
        ids = {n["id"] for n in s["nodes"]}
        assert {(x["from"], x["to"]) for x in s["links"]} == {tuple(ids), tuple(reversed(tuple(ids)))}
        assert all(x["kind"] == "loopback" and x["mtu"] >= 1280 for x in s["links"])
        for m in ("nodeIdentities", "nodeMemory", "nodeDisk", "nodeSystem", "nodeNetwork", "nodeRdmaCtl", "lastSeen"):
            assert set(s[m]) == ids, m
        assert set(s["topology"]["connections"]) == ids
        assert a.request("/state/nodeMemory/" + s["node_id"] + "/ramTotal/inBytes")[1] == s["nodes"][0]["memory"]
        assert a.request("/state/nowhere")[0] == 404
        b.wait(known, 20, "the same on the other node, which hears of it a moment later")
        out = subprocess.run([SKEIN, "nodes", "--port", str(b.port)], capture_output=True, text=True, check=True).stdout
        assert "node1 -> node2" in out and "node2 -> node1" in out and re.search(r"\d [MG]B/s", out), out
        links = subprocess.run([SKEIN, "nodes", "--links", "--json", "--port", str(b.port)], capture_output=True, text=True, check=True)
        assert len(json.loads(links.stdout)) == 2
    finally:
        a.stop()
        b.stop()


def test_events_tell_of_a_lost_node_and_who_comes_back_catches_up():
    a, b = cluster(2, "--node-timeout", "2000")
    try:
        lines = []
        listen(a, lines)
        a.wait(lambda n: any(x.startswith(":") for x in lines), 60, "beginning of the stream")
        b.stop()
        a.wait(lambda n: any(e["type"] == "node_lost" and e["name"] == "node2" for e in events(lines)), 60, "event")
        lost = next(e for e in events(lines) if e["type"] == "node_lost")
        again = []
        listen(a, again, last=lost["id"].split("-")[0] + "-0")
        a.wait(lambda n: any(e["id"] == lost["id"] for e in events(again)), 60, "the same event again")
        assert [e["type"] for e in events(again)].index("node_joined") < [e["type"] for e in events(again)].index("node_lost")
        stale = []
        listen(a, stale, last="0badcafe-7")
        a.wait(lambda n: any(e["type"] == "reset" for e in events(stale)), 60, "reset")
    finally:
        a.stop()
        b.stop()


# (cable, its MTU, what both devices claim, seconds one way, bytes a second, largest packet that passes)
CABLES = [
    ("delay=5ms rate=12.5M", 1500, 1500, 0.005, 12.5e6, 1500),
    ("delay=0.2ms rate=125M", 9000, 9000, 0.0002, 125e6, 9000),
    ("delay=1ms rate=125M mtu=1500", 9000, 9000, 0.001, 125e6, 1500),  # a switch between them that knows no jumbo frames
]


@pytest.mark.skipif(netlab.missing(linkem=True) is not None, reason=str(netlab.missing(linkem=True)))
@pytest.mark.parametrize("words,mtu,claimed,delay,rate,passes", CABLES)
def test_links_of_known_cables(words, mtu, claimed, delay, rate, passes):
    with netlab.Lab() as lab:
        a, b = lab.machine("a"), lab.machine("b")
        a.plug(b, "10.9.0.1/24", there=["10.9.0.2/24"], link=words, mtu=mtu)
        x = a.node("--no-discovery", env=MEASURE).wait_up()
        b.node("--no-discovery", env=MEASURE, peers=["10.9.0.1:52416"]).wait_up()
        links = x.wait(lambda n: [link for link in n.state()["links"] if link.get("rtt_us")] if len(n.state()["links"]) == 2 else None, 120, "links")
        assert len(links) == 2
        for link in links:
            # The machine runs other things too: the emulated cable may be slower than it says, never faster.
            assert 2e6 * delay * 0.95 <= link["rtt_us"] <= 2e6 * delay + 500000, link
            assert link["rtt_us"] <= link["rtt_p99_us"]
            if passes < claimed:
                assert "set the MTU of both ends to 1500" in link["problem"], link
            else:
                assert "problem" not in link and rate * 0.005 <= link["bandwidth_bytes_per_s"] <= rate * 1.2, link
            assert link["mtu"] == passes and link["jumbo"] == (passes >= 9000), link
            assert link["kind"] == "ethernet" and link["interface"].startswith("eth"), link


CHANGES = [("POST", "/place_instance", {"model_id": "x"}), ("DELETE", "/instance/none", None), ("POST", "/instance/reload/none", {})]


@pytest.mark.skipif(not own_address(), reason="this machine has no address but loopback's")
@pytest.mark.parametrize("key", [None, "secret"])
def test_other_machines_need_the_key_for_changes(key):
    n = Node("--host", "*", *(["--api-key", key] if key else []))
    try:
        n.wait_up()
        n.wait(lambda x: x.request("/health")[0] == 200, 60, "health")
        here = n.url
        for method, path, body in CHANGES:
            assert n.request(path, body, method)[0] == 404  # this machine may; there is no such thing
        n.url = f"http://{own_address()}:{n.port}"
        assert n.request("/state")[0] == 200 and n.request("/node_id")[0] == 200
        for method, path, body in CHANGES:
            status, r = n.request(path, body, method)
            assert status == 401 and "--api-key" in r["error"]["message"] or key, r
            for sent, expected in ((None, 401), ("wrong", 401), (key, 404 if key else 401)):
                q = urllib.request.Request(n.url + path, data=json.dumps(body).encode() if body is not None else None, method=method)
                if sent:
                    q.add_header("Authorization", "Bearer " + sent)
                try:
                    status = urllib.request.urlopen(q, timeout=60).status
                except urllib.error.HTTPError as e:
                    status = e.code
                assert status == expected, (method, path, sent)
        # Fetching a model is a change too; a name that nobody knows is just that.
        status, r = n.request("/v1/chat/completions", {"model": "qwen3-0.6b", "messages": [{"role": "user", "content": "x"}]})
        assert status in (401, 404), r
        n.url = here
    finally:
        n.stop()


def test_no_api_and_one_process_per_folder():
    a = Node("--no-api", name="quiet")
    b = Node(peers=[a], name="loud")
    try:
        b.wait_up().wait_nodes(2)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", a.port), 2)
        quiet = next(n for n in b.state()["nodes"] if n["name"] == "quiet")
        assert quiet["api_port"] == 0
        r = subprocess.run([SKEIN, "up", "--port", "0", "--bus-port", "0", "--data-dir", a.home], capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and "uses the data folder" in r.stderr, r.stderr
    finally:
        a.stop()
        b.stop()
