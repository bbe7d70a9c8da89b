#!/usr/bin/env python3
"""Compares the answers of upstream Placement and Kilonova to random queries on random provider trees.

    scripts/placement_differential.py --theirs URL --ours URL [--seed N] [--seconds N] [...]

Each round empties both servers, loads the same random forest of providers into both (nested trees, equal
children, sharing providers, aggregates, traits, reserved, overcommitted and partly used inventories), and
sends both the same random `GET /allocation_candidates`. The status, the set of candidates with their
mappings, and the provider summaries must be equal; their order does not matter. Where upstream does not
answer within --patience seconds, or answers 500, nothing is compared; such queries are counted separately.

Some of upstream's answers are bugs that contradict its own documentation. Conditions on the query, the
forest and the difference identify each (`slip`), and they are counted by name. Exits with 1 if anything
else differs. Both servers: `noauth2`, token `admin`.
Standard library only.
"""

import argparse
import collections
import http.client
import json
import random
import sys
import time
import urllib.parse
import uuid

CLASSES = ["VCPU", "DISK_GB", "VGPU"]
TRAITS = ["CUSTOM_DIFF_A", "CUSTOM_DIFF_B", "CUSTOM_DIFF_C"]
SHARES = "MISC_SHARES_VIA_AGGREGATE"
AGGREGATES = [str(uuid.uuid5(uuid.NAMESPACE_URL, f"aggregate {n}")) for n in range(3)]
NOWHERE = str(uuid.uuid5(uuid.NAMESPACE_URL, "nowhere"))


class Api:
    """One server, with one keep-alive connection."""

    def __init__(self, url, patience):
        self.host = urllib.parse.urlsplit(url).netloc
        self.patience = patience
        self.connection = None

    def ask(self, method, path, body=None, version="1.39"):
        """Returns status and JSON body; status 0 after a timeout."""
        headers = {"x-auth-token": "admin", "accept": "application/json",
                   "openstack-api-version": f"placement {version}"}
        if body is not None:
            body = json.dumps(body)
            headers["content-type"] = "application/json"
        for attempt in (1, 2):
            fresh = self.connection is None
            if fresh:
                self.connection = http.client.HTTPConnection(self.host, timeout=self.patience)
            try:
                self.connection.request(method, path, body, headers)
                reply = self.connection.getresponse()
                text = reply.read()
                return reply.status, json.loads(text) if text else None
            except TimeoutError:
                self.connection.close()
                self.connection = None
                return 0, None
            except (http.client.HTTPException, OSError):
                self.connection.close()
                self.connection = None
                if fresh or attempt == 2:
                    raise
        raise AssertionError("not reached")

    def must(self, method, path, body=None):
        """Sends a request that must succeed."""
        status, answer = self.ask(method, path, body)
        if status >= 300 or status == 0:
            sys.exit(f"{self.host}: {method} {path}: {status} {answer}\n{body}")
        return answer

    def empty(self):
        """Deletes all allocations and providers."""
        rows = self.must("GET", "/resource_providers")["resource_providers"]
        for row in rows:
            held = self.must("GET", f"/resource_providers/{row['uuid']}/allocations")
            for consumer in held["allocations"]:
                self.ask("DELETE", f"/allocations/{consumer}")
        left = {row["uuid"]: row["parent_provider_uuid"] for row in rows}
        while left:
            for leaf in [one for one in left if one not in left.values()]:
                self.must("DELETE", f"/resource_providers/{leaf}")
                del left[leaf]

    def load(self, forest):
        """Creates a forest."""
        for one in forest:
            body = {"name": one["name"], "uuid": one["uuid"]}
            if one["parent"]:
                body["parent_provider_uuid"] = one["parent"]
            self.must("POST", "/resource_providers", body)
            path, generation = f"/resource_providers/{one['uuid']}", 0
            if one["inventories"]:
                self.must("PUT", path + "/inventories", {
                    "resource_provider_generation": generation,
                    "inventories": one["inventories"]})
                generation += 1
            if one["traits"]:
                self.must("PUT", path + "/traits", {
                    "resource_provider_generation": generation, "traits": one["traits"]})
                generation += 1
            if one["aggregates"]:
                self.must("PUT", path + "/aggregates", {
                    "resource_provider_generation": generation,
                    "aggregates": one["aggregates"]})
            for consumer, resources in one["used"]:
                self.must("PUT", f"/allocations/{consumer}", {
                    "allocations": {one["uuid"]: {"resources": resources}},
                    "project_id": "diff", "user_id": "diff", "consumer_generation": None,
                    "consumer_type": "INSTANCE"})


def inventory(rnd):
    """A random inventory, and how much of it to use."""
    total = 6 if rnd.random() < 0.8 else rnd.randint(1, 5)
    minimum, step = rnd.choice([(1, 1)] * 6 + [(2, 1), (1, 2)])
    terms = {"total": total, "reserved": rnd.choice([0] * 6 + [min(2, total)]),
             "min_unit": minimum, "max_unit": rnd.choice([8] * 5 + [1, 2, 3]),
             "step_size": step, "allocation_ratio": rnd.choice([1.0] * 4 + [1.5])}
    room = int((terms["total"] - terms["reserved"]) * terms["allocation_ratio"])
    used = rnd.choice([0] * 4 + [1, 2, 3, 4])
    used = min(used, room, terms["max_unit"])
    used -= used % step
    return terms, used if used >= minimum else 0


def provider(rnd, name, parent, lender):
    classes = [] if rnd.random() < 0.2 else rnd.sample(CLASSES, rnd.randint(1, 3))
    traits = rnd.sample(TRAITS, rnd.randint(0, 2)) + ([SHARES] if lender else [])
    few = rnd.sample(AGGREGATES, rnd.randint(1, 2))
    aggregates = few if lender or rnd.random() < 0.35 else []
    one = {"name": name, "uuid": str(uuid.UUID(int=rnd.getrandbits(128), version=4)),
           "parent": parent and parent["uuid"], "inventories": {}, "traits": traits,
           "aggregates": aggregates, "used": []}
    for cls in classes:
        terms, used = inventory(rnd)
        one["inventories"][cls] = terms
        if used:
            consumer = str(uuid.UUID(int=rnd.getrandbits(128), version=4))
            one["used"].append((consumer, {cls: used}))
    return one


def forest(rnd):
    """Up to four trees of up to eight providers; some end in a run of equal leaves."""
    out = []
    for tree in range(rnd.randint(1, 4)):
        lone = rnd.random() < 0.25
        members = []
        for position in range(1 if lone else rnd.randint(1, 5)):
            parent = rnd.choice(members) if members else None
            lends = rnd.random() < (0.6 if lone else 0.08)
            members.append(provider(rnd, f"t{tree}p{position}", parent, lends))
        if len(members) > 1 and rnd.random() < 0.5:
            model = members[-1]
            for twin in range(rnd.randint(1, 3)):
                copy = dict(model, name=f"{model['name']}-{twin}", used=[],
                            uuid=str(uuid.UUID(int=rnd.getrandbits(128), version=4)))
                for _, resources in model["used"]:
                    consumer = str(uuid.UUID(int=rnd.getrandbits(128), version=4))
                    copy["used"].append((consumer, resources))
                members.append(copy)
        out += members
    return out


def some_traits(rnd):
    """Values for one `required` key."""
    kind = rnd.random()
    if kind < 0.35:
        return [",".join(rnd.sample(TRAITS, rnd.randint(1, 2)))]
    if kind < 0.55:
        return ["!" + rnd.choice(TRAITS)]
    if kind < 0.7:
        one, other = rnd.sample(TRAITS, 2)
        return [f"{one},!{other}"]
    if kind < 0.9:
        return ["in:" + ",".join(rnd.sample(TRAITS, 2))]
    one, *two = rnd.sample(TRAITS, 3)
    return [one, "in:" + ",".join(two)]


def some_aggregates(rnd):
    """Values for one `member_of` key."""
    kind = rnd.random()
    if kind < 0.35:
        return [rnd.choice(AGGREGATES)]
    if kind < 0.65:
        return ["in:" + ",".join(rnd.sample(AGGREGATES, 2))]
    if kind < 0.8:
        return ["!" + rnd.choice(AGGREGATES)]
    if kind < 0.9:
        return ["!in:" + ",".join(rnd.sample(AGGREGATES, 2))]
    return rnd.sample(AGGREGATES, 2) if rnd.random() < 0.8 else [NOWHERE]


def query(rnd, there):
    """A random query, as pairs."""
    suffixes = rnd.sample(["", "1", "2", "_X"], rnd.choice([1, 1, 2, 2, 2, 3, 3, 4]))
    named = [s for s in suffixes if s]
    sets = []
    if named and rnd.random() < 0.35:
        for _ in range(rnd.choice([1, 1, 2])):
            sets.append(rnd.sample(named, rnd.randint(1, len(named))))
    inside = {suffix for one in sets for suffix in one}
    pairs, asks = [], False
    for suffix in suffixes:
        # the meaning of a group without resources is documented for named groups only
        bare = suffix in inside and rnd.random() < 0.35
        if not bare:
            asks = True
            wanted = rnd.sample(CLASSES, rnd.choice([1, 1, 2]))
            amounts = ",".join(f"{c}:{rnd.choice([1, 1, 1, 2, 3])}" for c in wanted)
            pairs.append(("resources" + suffix, amounts))
        if bare or rnd.random() < 0.25:
            pairs += [("required" + suffix, v) for v in some_traits(rnd)]
        if rnd.random() < 0.2:
            pairs += [("member_of" + suffix, v) for v in some_aggregates(rnd)]
        if rnd.random() < 0.06:
            tree = rnd.choice(there)["uuid"] if rnd.random() < 0.9 else NOWHERE
            pairs.append(("in_tree" + suffix, tree))
    if not asks:
        pairs.append(("resources" + suffixes[0], "VCPU:1"))
    if len(named) > 1:
        pairs.append(("group_policy", rnd.choice(["none", "none", "isolate"])))
    pairs += [("same_subtree", ",".join(one)) for one in sets]
    if rnd.random() < 0.15:
        pairs.append(("root_required", rnd.choice(TRAITS[:2])))
    elif rnd.random() < 0.1:
        pairs.append(("root_required", "!" + rnd.choice(TRAITS[:2])))
    rnd.shuffle(pairs)
    return pairs


def canonical(answer):
    """The candidates as a set; the summaries with unordered lists sorted."""
    requests = collections.Counter()
    for one in answer["allocation_requests"]:
        amounts = one["allocations"]
        if isinstance(amounts, list):
            amounts = {entry["resource_provider"]["uuid"]: entry for entry in amounts}
        takes = sorted((rp, sorted(v["resources"].items())) for rp, v in amounts.items())
        serves = sorted((s, sorted(ids)) for s, ids in one.get("mappings", {}).items())
        requests[json.dumps([takes, serves])] += 1
    summaries = {}
    for rp, one in answer["provider_summaries"].items():
        summaries[rp] = dict(one, traits=sorted(one.get("traits", [])))
    return requests, summaries


def groups_of(pairs):
    """The content of each group of a query, by suffix and kind of key."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for key, value in pairs:
        for kind in ("resources", "required", "member_of", "in_tree"):
            if key.startswith(kind):
                groups[key[len(kind):]][kind].append(value)
    return groups


def slip(pairs, there, missing, more):
    """The known bug of upstream that explains a difference, or None."""
    groups = groups_of(pairs)
    lenders = {one["uuid"] for one in there if SHARES in one["traits"]}
    for group in groups.values():
        if group["resources"]:
            continue
        positive = any(not v.startswith("!") for v in group["member_of"]) or any(
            part.startswith("in:") or not part.startswith("!")
            for v in group["required"] for part in [v] + v.split(","))
        if not positive:
            return "group without resources that only forbids: always empty"
        if group["in_tree"]:
            return "group without resources: in_tree is ignored"
    if lenders and len(groups) > 1 and any(
            not v.startswith("!") for v in groups[""]["member_of"]):
        return "member_of of the unsuffixed group takes sharing providers from later groups"
    lent = [dict(json.loads(candidate)[1]).get("", []) for candidate in more]
    if len(groups) > 1 and more and not missing and all(
            served and lenders.issuperset(served) for served in lent):
        return "unsuffixed group served only by sharing providers is kept for only one of its trees"
    wanted = [part.split(":")[0] for g in groups.values() for v in g["resources"]
              for part in v.split(",")]
    if ("group_policy", "none") not in pairs and len(set(wanted)) < len(wanted):
        return "one class in several groups without group_policy=none: amounts add up"
    return None


def show(pairs):
    return "/allocation_candidates?" + urllib.parse.urlencode(pairs, safe=":,!")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--theirs", required=True, help="base URL of upstream Placement")
    parser.add_argument("--ours", required=True, help="base URL of Kilonova's Placement")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forests", type=int, default=40)
    parser.add_argument("--queries", type=int, default=25, help="queries per forest (default: 25)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this many seconds (default: never)")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for an answer (default: 20)")
    parser.add_argument("--show", type=int, default=5, help="differences to print in full (default: 5)")
    options = parser.parse_args()
    theirs = Api(options.theirs, options.patience)
    ours = Api(options.ours, options.patience)
    for name in TRAITS:
        for api in (theirs, ours):
            api.must("PUT", f"/traits/{name}")
    count, slips, begun = collections.Counter(), collections.Counter(), time.monotonic()
    spent = collections.Counter()
    for number in range(options.forests):
        if time.monotonic() - begun > options.seconds:
            break
        rnd = random.Random(options.seed * 1_000_003 + number)
        there = forest(rnd)
        for api in (theirs, ours):
            api.empty()
            api.load(there)
        count["forests"] += 1
        for _ in range(options.queries):
            pairs = query(rnd, there)
            path = show(pairs)
            answers = []
            for name, api in (("theirs", theirs), ("ours", ours)):
                since = time.monotonic()
                answers.append(api.ask("GET", path))
                spent[name] += time.monotonic() - since
            (status, them), (our_status, us) = answers
            count["queries"] += 1
            if status in (0, 500, 502, 504):
                count["upstream too slow" if status == 0 else "upstream 500"] += 1
                if our_status != 200:
                    count["different"] += 1
                    print(f"ours fails: {our_status}\n  {path}\n  {us}")
                continue
            count["compared"] += 1
            why, missing, more = None, {}, {}
            if status != our_status:
                why = f"status {status} there, {our_status} here: {us}"
            elif status == 200:
                (requests, summaries), (our_requests, our_summaries) = map(canonical, (them, us))
                count["candidates"] += sum(requests.values())
                count["with candidates"] += bool(requests)
                if requests != our_requests:
                    missing, more = requests - our_requests, our_requests - requests
                    why = (f"{sum(requests.values())} candidates there, "
                           f"{sum(our_requests.values())} here;\n  only there: "
                           f"{list(missing)[:2]}\n  only here: {list(more)[:2]}")
                elif summaries != our_summaries:
                    names = sorted(k for k in {*summaries, *our_summaries}
                                   if summaries.get(k) != our_summaries.get(k))
                    why = f"summaries differ: {names}"
            if why is None:
                count["same"] += 1
                continue
            known = slip(pairs, there, missing, more)
            if known:
                slips[known] += 1
                continue
            count["different"] += 1
            if count["different"] <= options.show:
                print(f"forest {number} of seed {options.seed}: {path}\n  {why}")
                for one in there:
                    print(f"    {json.dumps(one)}")
    print(f"{count['queries']} queries on {count['forests']} forests: {count['compared']} compared "
          f"({count['with candidates']} with candidates, {count['candidates']} candidates), "
          f"{count['same']} the same, {count['different']} different, "
          f"{sum(slips.values())} excused; upstream failed {count['upstream 500']} times and was "
          f"too slow {count['upstream too slow']} times; waited {spent['theirs']:.0f} s for "
          f"upstream, {spent['ours']:.1f} s for ours")
    for name, times in sorted(slips.items()):
        print(f"  excused {times}: {name}")
    sys.exit(1 if count["different"] else 0)


if __name__ == "__main__":
    main()
