"""The link emulator itself: each property that it is set to shows in what arrives."""

import socket
import subprocess
import time

import pytest

import netlab

pytestmark = pytest.mark.skipif(bool(netlab.missing(linkem=True)), reason=str(netlab.missing(linkem=True)))
THERE = ("10.9.0.2", 5000)


@pytest.fixture(scope="module")
def link():
    with netlab.Lab() as lab:
        a, b = lab.machine("a", ipv6=False), lab.machine("b", ipv6=False)
        cable = a.plug(b, "10.9.0.1/24", there=["10.9.0.2/24"], link="", mtu=9000, linkem_args=["--seed", "7"])
        with netlab.inside(a.netns):
            out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            out.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: never fragment
        with netlab.inside(b.netns):
            into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            into.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE: nothing is read before all of it was sent
            into.bind(THERE)
        cable.out, cable.into = out, into
        send_all(cable, 1)  # ARP is done
        yield cable
        out.close()
        into.close()


def send_all(cable, n, size=100, quiet_s=1):
    """Numbers of the datagrams in the order of their arrival, and when the first was sent and the last came."""
    start = time.monotonic()
    for i in range(n):
        cable.out.sendto(i.to_bytes(4, "big") + bytes(size - 4), THERE)
        time.sleep(0)
    got, last = [], start
    cable.into.settimeout(quiet_s)
    try:
        while True:
            got.append(int.from_bytes(cable.into.recv(65536)[:4], "big"))
            last = time.monotonic()
    except socket.timeout:
        return got, last - start


def test_delay(link):
    link.set("both reset")
    link.set("ab delay=100ms")
    got, took = send_all(link, 1)
    assert got == [0] and 0.1 <= took
    link.set("ab delay=0")
    assert any(got == [0] and took < 0.1 for got, took in (send_all(link, 1) for _ in range(10)))


def test_jitter_keeps_order(link):
    link.set("both reset delay=20ms jitter=20ms")
    assert send_all(link, 200)[0] == list(range(200))


def test_loss(link):
    link.set("both reset loss=20")
    before = int(link.stats()["ab"]["lost"])
    got, _ = send_all(link, 1000)
    lost = int(link.stats()["ab"]["lost"]) - before
    assert got == sorted(got) and 1000 <= len(got) + lost <= 1003  # a frame of ARP may be among the lost
    assert 100 < 1000 - len(got) < 300


def test_reordering(link):
    link.set("both reset reorder=10 reorder-by=5ms")
    got, _ = send_all(link, 500)
    assert sorted(got) == list(range(500)) and got != sorted(got)


def test_duplicates(link):
    link.set("both reset dup=10")
    got, _ = send_all(link, 500)
    assert set(got) == set(range(500)) and 500 + 10 < len(got) < 500 + 150


def test_rate(link):
    link.set("both reset rate=1M queue=1M")  # 200 frames of 1,042 bytes take 0.2084 s
    got, took = send_all(link, 200, 1000)
    assert got == list(range(200)) and took >= 0.2
    link.set("both rate=10K queue=5K")
    assert 3 < len(send_all(link, 200, 1000)[0]) < 100


def test_mtu(link):
    link.set("both reset")
    assert send_all(link, 1, 8972)[0] == [0]
    link.set("both mtu=1500")
    assert send_all(link, 1, 1473)[0] == []
    assert send_all(link, 1, 1472)[0] == [0]


def test_the_plug(link):
    link.set("both reset")
    link.pull()
    assert "NO-CARRIER" in netlab.sh("ip", "-n", link.ends[0][0], "link", "show", "eth0")
    link.put_back()  # the kernels notice the carrier a moment later
    assert any(send_all(link, 1)[0] == [0] for _ in range(20))


def test_words_that_are_none(link):
    for words in ("both delay=fast", "both loss=101", "both los=1", "sideways delay=1"):
        with pytest.raises(AssertionError, match="expected"):
            link.set(words)
    r = subprocess.run([netlab.LINKEM, "--mtu", "many", "a", "b"], capture_output=True, text=True)
    assert r.returncode == 2 and "--mtu many" in r.stderr
