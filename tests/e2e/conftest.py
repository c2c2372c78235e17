import pytest

import harness


@pytest.fixture(scope="session")
def need_model():
    if not harness.models_dir():
        pytest.skip("the default model is not here and could not be fetched")


@pytest.fixture(scope="module")
def one(need_model):
    n = harness.Node().wait_up()
    yield n
    n.stop()


@pytest.fixture(scope="module")
def two(need_model):
    nodes = harness.cluster(2)
    yield nodes
    for n in nodes:
        n.stop()
