"""Placing, finding and deleting instances by HTTP."""

import subprocess

import pytest

from harness import MKMODEL, cluster


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
        path = f"/instance/{r['instance_id']}"
        status, found = two[i].request(path)
        assert status == 200 and found["model"] == "tiny", found
        assert two[i].request(path, method="DELETE")[0] == 200
    for n in two:
        n.wait(lambda n: not n.state()["instances"], what="end of the instances")
