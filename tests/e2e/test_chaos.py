"""No answer is lost: a short form of chaos.py, replicas of which one dies, a cluster on which nothing is left, and a full queue."""

import json
import os
import signal
import socket
import time

import pytest

import chaos
import harness


@pytest.fixture()
def world(need_model):
    seed = int(os.environ.get("CHAOS_SEED", "1"))  # chaos.py draws fresh ones
    w = chaos.World(seed, n_tokens=16, n_streams=4)
    yield w
    w.close()


def test_chaos(world):
    """Ten kills over all layouts. The full run has 200 and eight clients: docs/sharding.md."""
    world.layouts = world.R.sample(list(chaos.LAYOUTS), 3)
    if any(x not in ("one", "pipeline2", "pipeline3") for x in world.layouts):
        world.n_asks = 6  # a sampled answer may change with the number of tensor ranks: chaos.py's full run has them all the same
    world.run(10, per_round=4)
    assert not world.failures and world.n_kills == 10 and world.n_answers > world.n_streams


def test_one_of_two_replicas_dies(world):
    """Both serve; when the runner of one is killed its answers go on at the other, and it comes back."""
    world.reference()
    n = world.nodes[0]
    n.request(f"/instance/{world.instance}", method="DELETE")
    n.wait(lambda n: not n.state()["instances"], what="end of the instance")
    status, r = n.request("/place_instance", {"model_id": world.model, "replicas": 2})
    assert status == 200 and len(set(r["instance_ids"])) == 2 and r["instance_id"] == r["instance_ids"][0], r
    ids = r["instance_ids"]

    def ready(n):
        return all(n.state()["instances"][i]["status"] == "ready" for i in ids)

    n.wait(ready, 120, "two ready instances")
    shards = {i: n.state()["instances"][i]["shards"][0] for i in ids}

    def during():
        world.wait_flow()
        t = time.monotonic()
        os.kill(shards[ids[1]]["pid"], signal.SIGKILL)
        world.wait_tokens(chaos.STALL, t)

    world.round_of_streams([n], during)
    assert not world.failures
    n.wait(ready, 120, "the replica that died, ready again")
    assert n.state()["instances"][ids[1]]["shards"][0]["pid"] != shards[ids[1]]["pid"]


def test_all_or_no_replicas(world):
    n = world.nodes[0]
    names = [x.name for x in world.nodes]
    status, r = n.request("/place_instance", {"model_id": world.model, "replicas": 3, "n_ctx": 64, "nodes": names[:1], "min_nodes": 2})
    assert status == 503 and "needs 2 nodes" in r["error"]["message"], r
    assert not n.state()["instances"]


def test_no_placement_is_left(need_model):
    """A node without shards of its own serves an instance on another one, and that is killed: an error event says so."""
    first = harness.Node("--no-worker", name="front").wait_up()
    worker = harness.Node(name="worker", peers=[first]).wait_up()
    try:
        first.wait_nodes(2)
        body = {"model": harness.MODEL, "messages": [{"role": "user", "content": "Tell me everything."}], "stream": True, "max_tokens": 4000}
        with socket.create_connection(("127.0.0.1", first.port), timeout=120) as s:
            data = json.dumps(body).encode()
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(data) + data)
            got = b""
            while got.count(b"data: ") < 3:
                got += s.recv(65536)
            worker.kill()
            while b'"error"' not in got:
                more = s.recv(65536)
                assert more, got[-500:]
                got += more
        assert b"can't be served" in got and b"worker" in got, got[-1000:]
        worker.start().wait_up()  # and what comes back is used again
        first.wait_nodes(2)
        assert harness.chat(first, "Hello.", max_tokens=4)
    finally:
        first.stop()
        worker.stop()


def test_a_full_queue_says_when_to_come_again(need_model):
    n = harness.Node().wait_up()
    body = json.dumps({"model": harness.MODEL, "messages": [{"role": "user", "content": "Count."}], "max_tokens": 4000, "stream": True}).encode()
    socks = []
    try:
        for _ in range(270):
            s = socket.create_connection(("127.0.0.1", n.port), timeout=60)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            socks.append(s)
        answers = []
        end = time.monotonic() + 60
        while not any(a.startswith(b"HTTP/1.1 503") for a in answers) and time.monotonic() < end:
            for s in socks:
                s.setblocking(False)
                try:
                    a = s.recv(4096)
                    if a:
                        answers.append(a)
                except BlockingIOError:
                    pass
            time.sleep(0.05)
        busy = [a for a in answers if a.startswith(b"HTTP/1.1 503")]
        assert busy and b"retry-after: " in busy[0].lower() and b"requests are open on this node" in busy[0], answers[-3:]
    finally:
        for s in socks:
            s.close()
    try:
        n.wait(lambda n: n.request("/v1/chat/completions", json.loads(body) | {"max_tokens": 2, "stream": False}, timeout=60)[0] == 200,
               60, "an answer after the rush")
    finally:
        n.stop()
