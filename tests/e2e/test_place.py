"""Placing, finding and deleting instances by HTTP."""

import json
import signal
import subprocess

import pytest

from harness import MKMODEL, SKEIN, Node, cluster


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    subprocess.run([MKMODEL, "--ctx", "256", str(models / "tiny.gguf")], check=True)
    nodes = cluster(2, models=str(models))
    yield nodes
    for n in nodes:
        n.stop()


@pytest.mark.parametrize("i", [0, 1])
def test_what_was_placed_is_there_at_once(two, i):
    for _ in range(5):
        status, r = two[i].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})
        assert status == 200, r
        assert r["model_card"]["modelId"] == "tiny" and r["model_card"]["nLayers"] > 0
        path = f"/instance/{r['instance_id']}"
        status, found = two[i].request(path)
        assert status == 200 and found["model"] == "tiny", found
        assert two[i].request(path, method="DELETE")[0] == 200
    for n in two:
        n.wait(lambda n: not n.state()["instances"], what="end of the instances")


def test_bench_measures_a_cluster_on_one_node_and_on_two(two, tmp_path):
    rows_file = tmp_path / "rows.json"
    cmd = [SKEIN, "bench", "tiny", "--host", "127.0.0.1", "--port", str(two[0].port), "--max-nodes", "5", "--pp", "64",
           "--tg", "8", "--repeat", "2", "--kv-type", "q8", "--json-out", str(rows_file)]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    rows = json.loads(rows_file.read_text())
    assert [x["num_nodes"] for x in rows] == [1, 2] and {x["sharding"] for x in rows} == {"pipeline"}
    for x in rows:
        assert 60 <= x["pp_tokens"] <= 80 and x["tg_tokens"] == 8 and x["peak_memory"] > 0
        assert 0 < x["prompt_tps_min"] <= x["prompt_tps"] and 0 < x["generation_tps_min"] <= x["generation_tps"]
    assert not two[0].state()["instances"]
    r = subprocess.run([*cmd[:7], "--max-nodes", "2", "--sharding", "both", "--pp", "16", "--tg", "1", "--repeat", "1", "--json-out",
                        str(rows_file)], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    rows = json.loads(rows_file.read_text())
    assert [(x["sharding"], x["num_nodes"]) for x in rows] == [("pipeline", 1), ("pipeline", 2), ("tensor", 2)]
    assert all(x["generation_tps"] is None for x in rows) and r.stdout.count("- /") == 6, r.stdout
    status, placed = two[0].request("/place_instance", {"model_id": "tiny"})
    assert status == 200, placed
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    assert r.returncode != 0 and "placed already" in r.stderr, r.stderr
    two[0].request(f"/instance/{placed['instance_id']}", method="DELETE")
    for n in two:
        n.wait(lambda n: not n.state()["instances"], what="end of the instances")


def test_bench_that_is_stopped_leaves_nothing_behind(two):
    p = subprocess.Popen([SKEIN, "bench", "tiny", "--port", str(two[0].port), "--pp", "8", "--tg", "100", "--repeat", "100"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    two[0].wait(lambda n: [i for i in n.state()["instances"].values() if i["status"] == "ready"], what="a ready instance")
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 1 and err == "skein: stopped\n", err
    assert not two[0].state()["instances"]


def test_a_coordinator_asks_the_worker_that_knows(tmp_path):
    """A node without shards has a worker look into the file: one that lacks it, or dies meanwhile, is not the last."""
    dirs = [tmp_path / x for x in ("none", "w0", "w1")]
    for i, d in enumerate(dirs):
        d.mkdir()
        if i:
            for name in (f"m{i}", "both"):
                subprocess.run([MKMODEL, "--ctx", "256", str(d / f"{name}.gguf")], check=True)
    front = Node("--no-worker", "--node-timeout", "2000", name="front", models=str(dirs[0]))
    workers = [Node("--node-timeout", "2000", name=d.name, peers=[front], models=str(d)) for d in dirs[1:]]
    try:
        for n in [front, *workers]:
            n.wait_up()
        front.wait_nodes(3)
        for m in ("m1", "m2"):
            status, r = front.request("/instance/previews?model_id=" + m)
            assert status == 200, r
        for w in workers:
            w.p.send_signal(signal.SIGSTOP)
            status, r = front.request("/instance/previews?model_id=both")
            w.p.send_signal(signal.SIGCONT)
            assert status == 200, r
            front.wait_nodes(3)
        assert front.request("/instance/previews?model_id=nosuch")[0] == 404
    finally:
        for n in [front, *workers]:
            n.stop()
