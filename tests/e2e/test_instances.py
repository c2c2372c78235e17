"""The instance API as clients of exo use it, and the commands over it: previews, placements, by hand, awaited."""

import json
import pathlib
import re
import subprocess
import time
import urllib.request
import uuid

import pytest

from harness import MKMODEL, SKEIN, cluster, runner_pids


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    subprocess.run([MKMODEL, "--ctx", "256", "--layers", "6", "--heads", "4", "--kv-heads", "2", str(models / "tiny.gguf")],
                   check=True)
    (models / "broken.gguf").write_bytes(b"GGUF and nothing else")
    nodes = cluster(2, models=str(models))
    yield nodes
    for n in nodes:
        n.stop()


@pytest.fixture(autouse=True)
def clean(two):
    yield
    for i in two[0].state()["instances"]:
        two[0].request(f"/instance/{i}", method="DELETE")
    for n in two:
        n.wait(lambda n: not n.state()["instances"], what="end of the instances")


def skein(node, *args, code=0, env=None, cwd=None):
    p = subprocess.run([SKEIN, *args, "--port", str(node.port)], capture_output=True, text=True, timeout=60, env=env, cwd=cwd)
    assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
    return p.stdout + p.stderr


def runners_ready(state, instance_id):
    """What exo's own tools wait for: every runner of the instance says RunnerReady."""
    inst = state["instances"].get(instance_id)
    ids = inst and list(inst["MlxRingInstance"]["shardAssignments"]["runnerToShard"])
    return bool(ids) and all("RunnerReady" in state["runners"].get(r, {}) for r in ids)


def wait_ready(node, instance_id):
    node.wait(lambda n: runners_ready(n.state(), instance_id), what="RunnerReady on all ranks")


def previews(node, **query):
    q = "&".join(f"{k}={v}" for k, v in ({"model_id": "tiny"} | query).items())
    status, r = node.request(f"/instance/previews?{q}")
    assert status == 200, r
    return r["previews"]


def shards(instance):
    (tag, inside), = [(k, v) for k, v in instance.items() if k.startswith("Mlx")]
    a = inside["shardAssignments"]
    out = []
    for node, runner in a["nodeToRunner"].items():
        (kind, s), = a["runnerToShard"][runner].items()
        out.append((s["deviceRank"], node, kind, s))
    return [x[1:] for x in sorted(out, key=lambda x: x[0])]


def ask(node):
    status, r = node.request("/v1/chat/completions", {"model": "tiny", "max_tokens": 8, "temperature": 0,
                                                     "messages": [{"role": "user", "content": "hello"}]})
    assert status == 200, r
    return r["choices"][0]["message"]["content"]


def test_previews_have_exos_shape(two):
    ps = previews(two[1])
    assert {(p["sharding"], p["instance_meta"]) for p in ps} == {(s, m) for s in ("Pipeline", "Tensor") for m in ("MlxRing", "MlxJaccl")}
    good = [p for p in ps if p["error"] is None]
    assert {(p["sharding"], len(p["memory_delta_by_node"])) for p in good} == {("Pipeline", 1), ("Pipeline", 2), ("Tensor", 2)}
    ids = {n["id"] for n in two[0].state()["nodes"]}
    for p in good:
        parts = shards(p["instance"])
        assert {n for n, _, _ in parts} == set(p["memory_delta_by_node"]) <= ids
        assert all(b > 0 for b in p["memory_delta_by_node"].values())
        if p["sharding"] == "Pipeline":
            assert [k for _, k, _ in parts] == ["PipelineShardMetadata"] * len(parts)
            assert parts[0][2]["startLayer"] == 0 and parts[-1][2]["endLayer"] == 6
        else:
            assert [k for _, k, _ in parts] == ["TensorShardMetadata"] * 2
            assert parts[0][2]["slice"]["headEnd"] == parts[1][2]["slice"]["headFirst"]
    for p in ps:
        if p["error"]:
            assert p["instance"] is None and p["memory_delta_by_node"] is None
    only = next(iter(ids))
    assert all(set(p["memory_delta_by_node"]) == {only} for p in previews(two[0], node_ids=only) if p["error"] is None)


@pytest.mark.parametrize("wrap", ["wrapped", "tagged", "bare"])
@pytest.mark.parametrize("sharding", ["Pipeline", "Tensor"])
def test_a_preview_becomes_the_instance(two, sharding, wrap):
    p = [p for p in previews(two[0]) if p["error"] is None and p["sharding"] == sharding][-1]
    body = {"wrapped": {"instance": p["instance"]}, "tagged": p["instance"],
            "bare": p["instance"]["MlxRingInstance"]}[wrap]
    status, r = two[0].request("/instance", body)
    assert status == 200 and r["message"] == "Command received." and r["command_id"], r
    want = p["instance"]["MlxRingInstance"]["instanceId"]
    assert r["instance_id"] == want
    for n in two:
        wait_ready(n, want)
    got = two[1].request(f"/instance/{want}")[1]
    layout = lambda i: [(n, k, s["startLayer"], s["endLayer"], s.get("slice")) for n, k, s in shards(i)]
    assert layout(got) == layout(p["instance"])
    assert ask(two[1]) == ask(two[0])


def test_an_instance_brings_what_was_asked_for(two):
    """The context and the cache's type that a preview was computed for are those of its instance; its id stands for it alone."""
    inst = next(p["instance"] for p in previews(two[0], n_ctx=64, kv_type="q8") if p["error"] is None and len(p["memory_delta_by_node"]) == 2)
    status, r = two[0].request("/instance", {"instance": inst})
    assert status == 200, r
    i = r["instance_id"]
    wait_ready(two[0], i)
    made = two[0].state()["instances"][i]
    assert made["n_ctx"] == 64 and made["MlxRingInstance"]["kvType"] == "q8"
    assert two[0].request("/instance", inst)[0] == 200  # the same again
    parts = inst["MlxRingInstance"]["shardAssignments"]["runnerToShard"].values()
    for s in (next(iter(p.values())) for p in parts):
        s["startLayer"], s["endLayer"] = (0, 1) if s["deviceRank"] == 0 else (1, 6)
    status, r = two[0].request("/instance", inst)
    assert status == 400 and "already" in r["error"]["message"], r


def test_a_preview_is_launched_again(two):
    """A preview that was saved makes an instance as often as it is handed in; the id of a deleted one does not come back."""
    inst = next(p["instance"] for p in previews(two[0]) if p["error"] is None and len(p["memory_delta_by_node"]) == 2)
    ids = []
    for node in two[0], two[1], two[0]:  # whichever node is the master
        status, r = node.request("/instance", inst)
        assert status == 200, r
        ids.append(r["instance_id"])
        made = node.request(f"/instance/{ids[-1]}")[1]
        assert [n for n, _, _ in shards(made)] == [n for n, _, _ in shards(inst)]
        assert node.request(f"/instance/{ids[-1]}", method="DELETE")[0] == 200
        for n in two:
            n.wait(lambda n: ids[-1] not in n.state()["instances"], what="end of the instance")
    assert ids[0] == inst["MlxRingInstance"]["instanceId"] and len(set(ids)) == 3
    status, r = two[0].request("/instance", inst)
    wait_ready(two[1], r["instance_id"])


def test_tensor_and_pipeline_say_the_same(two):
    said = set()
    for sharding in ("Pipeline", "Tensor"):
        status, r = two[0].request("/place_instance", {"model_id": "tiny", "sharding": sharding, "min_nodes": 2})
        assert status == 200, r
        wait_ready(two[0], r["instance_id"])
        inst = two[0].request(f"/instance/{r['instance_id']}")[1]
        assert inst["sharding"] == sharding and len(inst["shards"]) == 2
        assert r["model_card"]["modelId"] == "tiny" and r["model_card"]["nLayers"] == 6
        said.add(ask(two[0]))
        two[0].request(f"/instance/{r['instance_id']}", method="DELETE")
        two[0].wait(lambda n: not n.state()["instances"], what="end of the instance")
    assert len(said) == 1, said


def test_a_layout_by_hand_is_kept(two):
    status, r = two[0].request("/place_instance", {"model_id": "tiny", "layers": "node2=0-1,node1=2-5"})
    assert status == 200, r
    inst = two[0].request(f"/instance/{r['instance_id']}")[1]
    assert [(s["layer_first"], s["layer_end"]) for s in inst["shards"]] == [(0, 2), (2, 6)]
    names = {n["id"]: n["name"] for n in two[0].state()["nodes"]}
    assert [names[s["node"]] for s in inst["shards"]] == ["node2", "node1"]
    wait_ready(two[1], r["instance_id"])


def test_a_preview_of_layers_by_hand(two):
    """The one layout that was asked for, as an instance or with the reason why not."""
    (p,) = previews(two[0], layers="node2=0-1,node1=2-5")
    assert p["error"] is None and [(s["startLayer"], s["endLayer"]) for _, _, s in shards(p["instance"])] == [(0, 2), (2, 6)]
    (p,) = previews(two[0], layers="node1=0-5,node2=0-5")
    assert p["sharding"] == "Tensor" and len(p["memory_delta_by_node"]) == 2
    (p,) = previews(two[0], layers="node1=0-3")
    assert "layers 4-5 are on no node" in p["error"] and p["instance"] is None
    status, r = two[0].request("/instance/previews?model_id=tiny&replicas=2")
    assert status == 400 and "one instance" in r["error"]["message"], r
    out = skein(two[0], "plan", "tiny", "--layers", "node2=0-1,node1=2-5")
    assert re.search(r"\* Pipeline over 2 nodes\n +node2 +layers 0-1: .*\n +node1 +layers 2-5", out), out


@pytest.mark.parametrize("body, status, says", [
    ({"model_id": "tiny", "min_nodes": 3}, 503, "needs 3 nodes, 2 are there"),
    ({"model_id": "tiny", "min_nodes": 2, "nodes": ["node1"]}, 503, "needs 2 nodes, 1 is there"),
    ({"model_id": "tiny", "nodes": ["nobody"]}, 404, "there is no node nobody: the nodes are node"),
    ({"model_id": "tiny", "layers": "node1=0-3"}, 400, "layers 4-5 are on no node"),
    ({"model_id": "tiny", "layers": "node1=0-3,node2=3-5"}, 400, "don't follow"),
    ({"model_id": "tiny", "sharding": "Rows"}, 400, "sharding"),
    ({"model_id": "tiny", "n_ctx": 1000000}, 400, "a context of 1000000 tokens: the model was trained for 256"),
    ({"model_id": "nosuch"}, 404, "nosuch"),
    ({"model_id": "broken"}, 400, "broken.gguf"),
])
def test_a_placement_that_fails_answers(two, body, status, says):
    got, r = two[1].request("/place_instance", body)
    assert got == status and says in r["error"]["message"], (got, r)
    assert not two[1].state()["instances"]


def test_placement_is_what_would_be_made(two):
    status, inst = two[0].request("/instance/placement?model_id=tiny&sharding=Tensor&min_nodes=2")
    assert status == 200 and [k for _, k, _ in shards(inst)] == ["TensorShardMetadata"] * 2
    assert not two[0].state()["instances"]
    status, r = two[0].request("/instance/placement?model_id=tiny&min_nodes=5")
    assert status == 503 and "needs 5 nodes" in r["error"]["message"]
    assert two[0].request("/instance/placement")[0] == 400


def events(node, query):
    with urllib.request.urlopen(f"{node.url}/instance/await?{query}", timeout=60) as f:
        assert f.headers["Content-Type"] == "text/event-stream"
        return [json.loads(line[6:]) for line in f if line.startswith(b"data: ")]


def test_await_means_ready(two):
    (e,) = events(two[0], "model_id=tiny&timeout_seconds=0.3")
    assert e["type"] == "timeout" and e["message"]
    status, r = two[0].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})
    assert status == 200, r
    (e,) = events(two[1], "model_id=tiny&timeout_seconds=60")
    assert e["type"] == "ready" and runners_ready(two[1].state(), r["instance_id"])
    inside = e["instance"]["MlxRingInstance"]
    assert inside["instance_id"] == r["instance_id"] and inside["shard_assignments"]["model_id"] == "tiny"
    assert two[0].request("/instance/await")[0] == 400


def test_get_delete_reload(two):
    nobody = str(uuid.uuid4())
    for path, method in [(f"/instance/{nobody}", "GET"), (f"/instance/{nobody}", "DELETE"), (f"/instance/reload/{nobody}", "POST")]:
        status, r = two[0].request(path, method=method)
        assert status == 404 and "Instance not found" in r["error"]["message"]
    i = two[0].request("/place_instance", {"model_id": "tiny"})[1]["instance_id"]
    wait_ready(two[1], i)
    pids = [s["pid"] for s in two[1].state()["instances"][i]["shards"]]
    status, r = two[1].request(f"/instance/reload/{i}", method="POST")
    assert status == 200 and r["message"] == "Command received.", r
    two[1].wait(lambda n: not set(pids) & {s.get("pid") for s in n.state()["instances"][i]["shards"]}, what="start from the beginning")
    wait_ready(two[1], i)
    status, r = two[1].request(f"/instance/{i}", method="DELETE")
    assert status == 200 and r["instance_id"] == i and r["command_id"], r
    two[0].wait(lambda n: i not in n.state()["instances"] and not n.state()["runners"], what="end of the instance")
    (e,) = events(two[0], f"instance_id={i}&timeout_seconds=60")  # it will never be ready
    assert e["type"] == "failed" and "deleted" in e["message"]


def test_models_by_status(two):
    assert "tiny" in [m["id"] for m in two[0].request("/v1/models?status=downloaded")[1]["data"]]
    status, r = two[0].request("/v1/models?status=here")
    assert status == 400 and r["error"]["param"] == "status", r


def test_the_guides_jq_lines(two):
    i = two[0].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})[1]["instance_id"]
    wait_ready(two[0], i)
    state = two[0].state()
    assert [x["meta"] for x in state["instances"].values()] == ["MlxRing"]  # .instances[].meta
    assert all(x["name"] and x["memory"] and x["device"] == "cpu" for x in state["nodes"])  # .nodes[] | {name, memory, device}
    assert state["instances"][i]["status"] == "ready"
    body = [p["instance"] for p in previews(two[0]) if p["error"] is None][0]  # .previews[] | select(.error == null) | .instance
    assert "MlxRingInstance" in body


def test_a_node_is_drained_and_used_again(two):
    ids = {n["name"]: n["id"] for n in two[0].state()["nodes"]}
    assert "no node" in skein(two[0], "drain", "nobody", code=1)
    skein(two[0], "drain", "node2")
    two[0].wait(lambda n: [x for x in n.state()["nodes"] if x.get("is_drained")], what="the mark")
    status, r = two[1].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})
    assert status == 503 and "needs 2 nodes, 1 is there" in r["error"]["message"], r
    skein(two[1], "drain", "--undo", ids["node2"])
    two[1].wait(lambda n: not [x for x in n.state()["nodes"] if x.get("is_drained")], what="the mark's end")
    skein(two[0], "drain", "node1")
    two[1].wait(lambda n: [x["name"] for x in n.state()["nodes"] if x.get("is_drained")] == ["node1"], what="the mark")
    assert "gets work again" in skein(two[1], "undrain", "node1")
    two[0].wait(lambda n: not [x for x in n.state()["nodes"] if x.get("is_drained")], what="the mark's end")
    assert two[0].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})[0] == 200


def test_without_a_node_the_reason_is_told(two):
    """No node is left, by the drains or by what was asked for: previews, placement and plan say which."""
    def reasons(query):
        ps = previews(two[0], **query)
        q = "&".join(f"{k}={v}" for k, v in ({"model_id": "tiny"} | query).items())
        status, r = two[0].request("/instance/placement?" + q)
        assert status == 503 and all(p["error"] for p in ps), (r, ps)
        plan = two[0].request("/instance/plan?" + q)[1]
        return {p["error"] for p in ps if p["instance_meta"] == "MlxRing"} | {r["error"]["message"].split("placed: ")[1], plan["reason"]}

    (said,) = reasons({"nodes": "node1", "exclude": "node1"})
    assert "nodes" in said and "exclude" in said, said
    try:
        for name in "node1", "node2":
            skein(two[0], "drain", name)
        two[0].wait(lambda n: len([x for x in n.state()["nodes"] if x.get("is_drained")]) == 2, what="the marks")
        (said,) = reasons({})
    finally:
        for name in "node1", "node2":
            skein(two[0], "undrain", name)
    assert "2 workers are drained" in said, said
    two[0].wait(lambda n: not [x for x in n.state()["nodes"] if x.get("is_drained")], what="the marks' end")
    assert [p for p in previews(two[0]) if p["error"] is None]


def test_a_stop_is_no_failure(two):
    """The ranks of an instance stop one after the other; those that are left for a moment know why."""
    before = [len(n.output()) for n in two]
    for _ in range(4):
        status, r = two[0].request("/place_instance", {"model_id": "tiny", "min_nodes": 2})
        assert status == 200, r
        i = r["instance_id"]
        wait_ready(two[0], i)
        assert two[0].request(f"/instance/{i}", method="DELETE")[0] == 200
        for n in two:
            n.wait(lambda x: not runner_pids(x), what="runners that ended")
    for n, at in zip(two, before):
        bad = [x for x in n.output()[at:].splitlines() if re.search(r" (error|warn) ", x)]
        assert not bad, bad


def test_commands(two):
    out = skein(two[0], "plan", "tiny")
    assert "Pipeline" in out and "Tensor" in out and "tokens/s" in out
    plan = json.loads(skein(two[0], "plan", "tiny", "--json", "--add", "studio=512:819"))
    assert plan["chosen"]["ranks"] and plan["with"][0]["name"] == "studio"
    assert {c["sharding"] for c in plan["candidates"]} == {"Pipeline", "Tensor"}
    out = skein(two[0], "launch", "tiny", "--sharding", "tensor", "--min-nodes", "2")
    assert "ready" in out
    out = skein(two[1], "ps")
    assert "Tensor" in out and "heads 0-1 of 4" in out, out
    assert "tiny stopped" in skein(two[1], "stop", "tiny")
    assert not two[1].state()["instances"]
    assert "trained for 256" in skein(two[0], "plan", "tiny", "--ctx", "600", code=1)
    for node in two:
        node.wait(lambda n: not n.state()["instances"], what="end of the instance")
    assert "no instance" in skein(two[1], "stop", "tiny", code=1)
    assert "needs 9 nodes" in skein(two[0], "launch", "tiny", "--min-nodes", "9", code=1)


def test_stop_takes_the_one_that_is_meant(two):
    """Ids begin with the time: those of one minute share a beginning that looks long enough."""
    a, b = (two[0].request("/place_instance", {"model_id": "tiny"})[1]["instance_id"] for _ in range(2))
    two[1].wait(lambda n: len(n.state()["instances"]) == 2, what="both instances")
    assert a[:4] == b[:4]
    assert "the ids of 2 instances begin with " + a[:4] in skein(two[1], "stop", a[:4], code=2)
    assert len(two[1].state()["instances"]) == 2
    same = next(i for i in range(36) if a[i] != b[i])
    skein(two[1], "stop", a[:same + 1])
    assert list(two[1].state()["instances"]) == [b]
    skein(two[1], "stop", b[:4])
    assert not two[1].state()["instances"]


def test_replicas_go_to_different_nodes(two):
    skein(two[0], "launch", "tiny", "--replicas", "2")
    insts = two[0].state()["instances"].values()
    assert len(insts) == 2 and all(i["status"] == "ready" for i in insts)
    assert len({s["node"] for i in insts for s in i["shards"]}) == 2


def test_a_file_is_launched_by_its_path(two, tmp_path):
    """A file of the models folder has a name, whichever way it is said; of another one the command says what to do."""
    models = pathlib.Path(two[0].env["SKEIN_MODELS_DIRS"])
    env = dict(two[0].env, SKEIN_MODELS_DIR=str(tmp_path / "own"))
    path = str(models / ".." / models.name / "tiny.gguf")
    assert "tiny is ready" in skein(two[0], "launch", path, env=env)
    assert "Candidates" in skein(two[0], "plan", path, env=env)
    assert skein(two[0], "ask", "-m", path, "-n", "2", "hello", env=env)
    assert "tiny stopped" in skein(two[0], "stop", path, env=env)
    elsewhere = tmp_path / "elsewhere.gguf"
    elsewhere.write_bytes((models / "tiny.gguf").read_bytes())
    for command in ["launch", str(elsewhere)], ["plan", str(elsewhere)], ["ask", "-m", str(elsewhere), "hello"]:
        said = skein(two[0], *command, code=2, env=env)
        assert str(tmp_path / "own") in said and "its name is elsewhere" in said and "skein run" in said, said
    assert "no model" in skein(two[0], "launch", "nobody/has-this", code=1, env=env)


def test_a_name_is_one_whatever_lies_around(two, tmp_path):
    """What is in the working folder has nothing to do with what a node calls a model."""
    (tmp_path / "nobody" / "has-this").mkdir(parents=True)
    (tmp_path / "google").mkdir()
    (tmp_path / "google" / "gemma-3-270m").write_text("not the model of that name")
    (tmp_path / "tiny.gguf").write_text("not the node's")
    env = dict(two[0].env, SKEIN_MODELS_DIR=str(tmp_path / "own"), SKEIN_MODELS_DIRS="")
    assert "no model" in skein(two[0], "launch", "nobody/has-this", code=1, env=env, cwd=tmp_path)
    said = skein(two[0], "launch", "google/gemma-3-270m", code=1, env=env, cwd=tmp_path)
    assert "gemma-3-270m" in said and "folder here" not in said, said
    assert "Candidates" in skein(two[0], "plan", "tiny.gguf", env=env, cwd=tmp_path)
