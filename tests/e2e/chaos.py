"""Chaos: runners, nodes and masters are killed while answers stream; every answer must come out as if nothing had happened.

Three nodes, eight clients. In each round an instance is placed in some layout, one node is chosen that may die (the clients
talk to the other two: nobody can save the connection to a process that is gone), and processes are killed in random
order. A round's seed is printed; `tests/e2e/chaos.py --kills 200 --seed N` runs it alone, test_chaos.py runs a short form.
"""

import argparse
import collections
import http.client
import json
import os
import random
import signal
import statistics
import sys
import threading
import time

import harness

# The number of tensor ranks changes the last bits of sums, and an answer may go on with another number of them. So the first six,
# asked at temperature 0, are such that the best two tokens are nowhere closer than 5 % of each other within 32 tokens.
TEXTS = ["Write a short story about a lighthouse keeper.", "Explain how bread is made.", "List the planets and one fact about each.",
         "What is a compiler?", "Describe the sea to somebody who has never seen it.", "Give advice to a new gardener.",
         "Why is the sky blue?", "Tell me about the history of the bicycle."]
# The last two are sampled, by a seed.
ASKS = [dict(messages=[{"role": "user", "content": t}], temperature=0) for t in TEXTS[:6]]
ASKS += [dict(messages=[{"role": "user", "content": t}], temperature=0.8, seed=11 + i) for i, t in enumerate(TEXTS[6:])]
# Of nodes a, b and c in random order; hybrid: a stage of one node before a stage of two.
LAYOUTS = {"one": {"nodes": ["a"]}, "pipeline2": {"sharding": "Pipeline", "min_nodes": 2}, "pipeline3": {"layers": "a=0-9,b=10-19,c=20-29"},
           "tensor2": {"sharding": "Tensor", "min_nodes": 2}, "tensor3": {"sharding": "Tensor", "min_nodes": 3},
           "hybrid": {"layers": "a=0-9,b=10-29,c=10-29"}}
KINDS = ["rank", "runner", "freeze", "node", "master"]
IN_FLIGHT = 0.1
STALL = 150  # seconds without a token after which an answer counts as lost


class Stream(threading.Thread):
    """One client: asks again and again until it is told to stop, and sees each answer through."""

    def __init__(self, world, number, node, once):
        super().__init__(daemon=True)
        self.world, self.number, self.node = world, number, node
        self.token_at = None  # time of the last token of the answer under way; None: there is none
        self.n_answers = 0
        self.once = once
        self.start()

    def run(self):
        k = self.number
        while not self.world.stopping or self.once:
            try:
                self.one(k % self.world.n_asks)
            except Exception as e:
                self.world.fail(f"stream {self.number} at {self.node.name}: {type(e).__name__}: {e}")
                return
            if self.once:
                return
            k += 1

    def one(self, k):
        body = dict(ASKS[k], model=self.world.model, stream=True, max_tokens=self.world.n_tokens, stream_options={"include_usage": True})
        c = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=STALL)
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            raise AssertionError(f"{r.status} {r.read(1000)!r}")
        text, finish, usage, done = "", None, None, False
        try:
            for line in r:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    done = True
                    break
                d = json.loads(line[6:])
                if "error" in d:
                    raise AssertionError(f"error event after {len(text)} characters: {d['error']}")
                usage = d.get("usage") or usage
                for ch in d.get("choices", []):
                    piece = ch["delta"].get("content")
                    if piece:
                        text += piece
                        self.token_at = time.monotonic()
                    finish = ch.get("finish_reason") or finish
        finally:
            self.token_at = None
            c.close()
        if not done or not finish or not usage:
            raise AssertionError(f"an answer without its end: finish={finish} usage={usage} done={done}")
        got = (text, finish, usage["completion_tokens"])
        want = self.world.wanted.setdefault(k, got)
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(text, want[0])) if a != b), min(len(text), len(want[0])))
            raise AssertionError(f"answer {k} differs at character {at}: {text[max(0, at - 30):at + 40]!r} for {want[0][max(0, at - 30):at + 40]!r} "
                                 f"({got[1:]} for {want[1:]})")
        self.n_answers += 1


class World:
    def __init__(self, seed, n_tokens=32, n_streams=8, model=harness.MODEL, args=(), layouts=None, kinds=None, log=print):
        self.R, self.log, self.model, self.n_tokens, self.n_streams = random.Random(seed), log, model, n_tokens, n_streams
        self.layouts, self.kinds = layouts or list(LAYOUTS), kinds or KINDS
        self.n_asks = len(ASKS)
        self.wanted, self.failures, self.stopping = {}, [], False
        self.gaps, self.n_kills, self.n_answers = collections.defaultdict(list), 0, 0
        self.nodes = harness.cluster(3, *args)
        self.ids = [n.request("/node_id")[1] for n in self.nodes]
        for i, n in enumerate(self.nodes):
            n.name = f"node{i + 1}"

    def close(self):
        for n in self.nodes:
            n.stop(signal.SIGKILL)

    def fail(self, why):
        self.failures.append(why)
        self.log("FAILED", why, flush=True)

    def by_id(self, id_):
        return next((n for n, i in zip(self.nodes, self.ids) if i == id_), None)

    def master(self):
        for n in self.nodes:
            try:
                return self.by_id(n.state()["master"])
            except (OSError, KeyError, ValueError):
                pass

    def wish(self, layout):
        name = dict(zip("abc", self.R.sample([n.name for n in self.nodes], 3)))
        w = dict(LAYOUTS[layout], model_id=self.model)
        if "nodes" in w:
            w["nodes"] = [name[x] for x in w["nodes"]]
        if "layers" in w:
            w["layers"] = ",".join(name[part[0]] + part[1:] for part in w["layers"].split(","))
        return w

    def place(self, layout):
        n = self.R.choice(self.nodes)
        wish = self.wish(layout)
        for i in n.state()["instances"]:
            n.request(f"/instance/{i}", method="DELETE")
        for x in self.nodes:
            x.wait(lambda x: not x.state()["instances"], 60, "end of the instances")
        for _ in range(20):  # a node has just come back: its memory may not be known yet
            status, r = n.request("/place_instance", wish)
            if status == 200:
                break
            time.sleep(0.5)
        assert status == 200, r
        for x in self.nodes:
            x.wait(lambda x: x.state()["instances"][r["instance_id"]]["status"] == "ready", 120, f"ready instance ({layout})")
        self.instance = r["instance_id"]

    def reference(self):
        """The undisturbed answers, of one machine."""
        self.place("one")
        self.round_of_streams(self.nodes, lambda: None, once=True)

    def round_of_streams(self, nodes, during, once=False):
        self.stopping = False
        self.streams = streams = [Stream(self, i, nodes[i % len(nodes)], once) for i in range(self.n_streams)]
        try:
            during()
        finally:
            self.stopping = True
            for s in streams:
                s.join(STALL * 2)
        for s in streams:
            if s.is_alive():
                self.fail(f"stream {s.number} at {s.node.name} hangs")
        self.n_answers += sum(s.n_answers for s in streams)

    def runners(self, first):
        """Process ids of the runners of rank 0, or of the others (of any, where there are no others)."""
        out = {True: [], False: []}
        for n in self.nodes:
            try:
                state = n.state()
            except (OSError, ValueError):
                continue
            for inst in state["instances"].values():
                for s in inst["shards"]:
                    if s.get("pid"):
                        out[s["rank"] == 0].append(s["pid"])
            break
        return out[first] or out[True]

    def serves(self, node):
        """Has it a shard?"""
        try:
            inst = node.state()["instances"].values()
            return any(s["node"] == self.ids[self.nodes.index(node)] for i in inst for s in i["shards"])
        except (OSError, KeyError, ValueError):
            return True

    def strike(self, kind, victim):
        """Kills something; returns what is to be done afterwards, and the process's name, or None when there is nothing to kill."""
        if kind in ("node", "master"):
            if victim.p.poll() is not None:
                return None
            if kind == "master" and self.master() is not victim:
                kind = "node"
            served = self.serves(victim)
            victim.kill()
            return kind if served else kind + " without a shard"
        pids = [p for p in self.runners(kind == "runner") if os.path.exists(f"/proc/{p}")]
        if not pids:
            return None
        try:
            os.kill(self.R.choice(pids), signal.SIGSTOP if kind == "freeze" else signal.SIGKILL)
        except ProcessLookupError:
            return None
        return kind

    def wait_tokens(self, seconds, flowing):
        """Until all answers that were under way have gone on since `flowing`; how long each of them took. What comes in the
        first moment was on its way already."""
        end = time.monotonic() + seconds
        waiting = [s for s in self.streams if s.is_alive() and s.token_at]
        took = []
        while waiting and time.monotonic() < end and not self.failures:
            for s in list(waiting):
                t = s.token_at
                if t is None or t > flowing + IN_FLIGHT:
                    waiting.remove(s)
                    took.append((t or time.monotonic()) - flowing)
            time.sleep(0.005)
        if waiting and not self.failures:
            self.fail(f"no token within {seconds} s of the kill: streams {[s.number for s in waiting]}")
        return took

    def wait_flow(self):
        """Most clients get tokens."""
        end = time.monotonic() + STALL
        while time.monotonic() < end and not self.failures and sum(bool(s.token_at) for s in self.streams) * 2 < self.n_streams:
            time.sleep(0.005)

    def round(self, layout, n_kills):
        R = self.R
        self.place(layout)
        m = self.master()
        victim = m if m and R.random() < 0.5 else R.choice(self.nodes)
        safe = [n for n in self.nodes if n is not victim]

        def during():
            self.wait_flow()
            dead_at, twice = None, False
            for _ in range(n_kills):
                if self.failures:
                    return
                time.sleep(R.random() * 1.5)
                if not twice:
                    self.wait_flow()
                kind = R.choice(self.kinds)
                twice = R.random() < 0.15  # another one before the answers have gone on
                t = time.monotonic()
                done = self.strike(kind, victim)
                if not done and kind in ("node", "master"):
                    done = self.strike("runner", victim)
                if not done:
                    continue
                self.n_kills += 1
                if victim.p.poll() is not None:
                    dead_at = t
                if not twice:
                    took = self.wait_tokens(STALL, t)
                    self.gaps[done] += took
                    self.log(f"kill {self.n_kills} {done} layout={layout} victim={victim.name} next tokens after "
                             + " ".join(f"{x:.2f}" for x in took) + " s", flush=True)
                else:
                    self.log(f"kill {self.n_kills} {done} layout={layout} victim={victim.name}, and another one at once", flush=True)
                if dead_at and R.random() < 0.5:
                    victim.start()
                    dead_at = None

        self.round_of_streams(safe, during)
        if victim.p.poll() is not None:
            victim.start()
        for n in self.nodes:
            n.wait_up()
        for n in self.nodes:
            n.wait_nodes(3)

    def run(self, kills, per_round=3):
        self.reference()
        self.log(f"undisturbed: {len(self.wanted)} answers", flush=True)
        k = 0
        while self.n_kills < kills and not self.failures:
            self.round(self.layouts[k % len(self.layouts)], min(per_round, kills - self.n_kills))
            k += 1
        self.log(self.report(), flush=True)

    def report(self):
        out = [f"{self.n_kills} kills, {self.n_answers} answers complete and equal, {len(self.failures)} failures"]
        for kind, v in sorted(self.gaps.items()) + [("all", [x for v in self.gaps.values() for x in v])]:
            if v:
                out.append(f"{kind}: {len(v)} pauses of answers, from the kill to the next token: median {statistics.median(v):.2f} s, worst {max(v):.2f} s")
        return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--layouts", default=",".join(LAYOUTS))
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--keep-logs", help="folder for the nodes' logs")
    a = p.parse_args()
    print("seed", a.seed, flush=True)
    w = World(a.seed, a.tokens, layouts=a.layouts.split(","), kinds=a.kinds.split(","))
    try:
        w.run(a.kills)
    finally:
        if a.keep_logs:
            os.makedirs(a.keep_logs, exist_ok=True)
            for n in w.nodes:
                open(os.path.join(a.keep_logs, n.name + ".log"), "w").write(n.output())
        w.close()
    return 1 if w.failures else 0


if __name__ == "__main__":
    sys.exit(main())
