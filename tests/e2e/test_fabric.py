"""Ranks whose frames travel through libfabric, or over several connections: the same answer as without."""

import re
import subprocess

import pytest

from harness import MKMODEL, SKEIN, cluster

TEXT = "one two three four five six seven"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    d = tmp_path_factory.mktemp("models")
    subprocess.run([MKMODEL, "--ctx", "512", "--layers", "4", "--heads", "4", "--kv-heads", "2", str(d / "tiny.gguf")], check=True)
    return str(d)


def refused(provider):
    """Why a node can't be started with it; None when it can: the mistake that is looked for next is found."""
    p = subprocess.run([SKEIN, "up", "--fabric", provider, "--kv-type", "x"], capture_output=True, text=True)
    return None if "KV cache" in p.stderr else p.stderr


def shown(nodes, instance, carrier):
    """Both ranks of it say what carries their frames, on either node, and `skein ps` does."""
    for n in nodes:
        n.wait(lambda n: [len(s["links"]) for s in n.state()["instances"][instance]["shards"]] == [1, 1], what="word of the links")
        for rank, s in enumerate(n.state()["instances"][instance]["shards"]):
            (link,) = s["links"]
            assert link["rank"] == 1 - rank and re.fullmatch(carrier, link["carrier"]), link
            assert link["is_encrypted"] == link["carrier"].endswith(", encrypted")
        out = subprocess.run([SKEIN, "ps", "--port", str(n.port)], capture_output=True, text=True).stdout
        assert re.search(f"^  link node. to node.: {carrier}$", out, re.M), out


def answer(nodes, sharding, carrier):
    status, r = nodes[0].request("/place_instance", {"model_id": "tiny", "sharding": sharding, "min_nodes": 2})
    assert status == 200, r
    body = {"model": "tiny", "messages": [{"role": "user", "content": TEXT}], "temperature": 0, "max_tokens": 24}
    status, said = nodes[0].request("/v1/chat/completions", body, timeout=60)
    assert status == 200, said
    shown(nodes, r["instance_id"], carrier)
    nodes[0].request(f"/instance/{r['instance_id']}", method="DELETE")
    nodes[0].wait(lambda n: not n.state()["instances"], what="end of the instance")
    return said["choices"][0]["message"]["content"]


def answers(models, *args, log=None, carrier="shared memory"):
    nodes = cluster(2, *args, models=models)
    try:
        said = [answer(nodes, s, carrier) for s in ("Tensor", "Pipeline")]
        if log:
            assert log in "".join(n.output() for n in nodes)
        return said
    finally:
        for n in nodes:
            n.stop()


@pytest.fixture(scope="module")
def plain(models):
    return answers(models)


@pytest.mark.parametrize("args", [("tcp",), ("shm",), ("tcp", "--encrypt-data")], ids=" ".join)
def test_libfabric_gives_the_same_answer(args, models, plain):
    why = refused(args[0])
    if why:
        pytest.skip(why.strip())
    carrier = f"libfabric {args[0]}[^,]*" + (", encrypted" if "--encrypt-data" in args else "")
    assert answers(models, "--fabric", *args, log=f"through libfabric provider={args[0]}", carrier=carrier) == plain


def test_within_a_machine_nothing_is_encrypted(models, plain):
    """For nothing leaves it: frames go through shared memory, as without."""
    assert answers(models, "--encrypt-data") == plain


def test_auto_and_several_connections_give_the_same_answer(models, plain):
    assert answers(models, "--fabric", "auto", "--data-streams", "3") == plain


def test_a_provider_that_is_not_there_is_refused():
    why = refused("no-such")
    assert why and "--fabric no-such: " in why and ("it has " in why or "libfabric" in why)
