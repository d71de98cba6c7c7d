#!/usr/bin/env python3
"""Verifies a proof or a file of anchors, from docs/data-model.md and docs/integrity.md alone.

    python3 -m venv v && v/bin/pip install -r scripts/requirements.txt
    v/bin/python scripts/verify_seals.py FILE [--trust PUBLIC_KEY_OR_FILE]...

Prints one JSON document. Exits with 0 when everything holds, 5 when something is broken, 2 when it was not asked properly.
"""

import argparse
import base64
import json
import os
import struct
import sys
import uuid

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ZEROS = bytes(32)


def lp(data):
    return struct.pack("<Q", len(data)) + data


def text(value):
    return lp(value.encode())


def number(value):
    return struct.pack("<q", value)


def count(value):
    return struct.pack("<Q", value)


def opt(value, write):
    return b"\0" if value is None else b"\1" + write(value)


def uid(value):
    return lp(uuid.UUID(value).bytes)


def h(data):
    return blake3(data).digest()


def genesis(thread):
    return h(text("threadkeep.genesis.v1") + text(thread))


def content_digest(item):
    """None of an item in whose content's place nothing stands."""
    if item["salt"] is None and item["content"] is None:
        return None
    return h(
        text("threadkeep.content.v1")
        + text(item["kind"])
        + opt(item["role"], text)
        + text(item["format"])
        + lp(bytes.fromhex(item["salt"]))
        + lp(base64.b64decode(item["content"], validate=True))
    ).hex()


def content_problem(item, redactions):
    """What is wrong with an item's content, or with what stands in its place."""
    found = content_digest(item)
    if item.get("redaction") is None:
        return None if found == item["digest"] else "its content was changed"
    record = redactions.get(item["redaction"])
    if record is None or record["item"] is None or record["item"]["id"] != item["id"]:
        return "its content was taken away, and no redaction is on record"
    if record["item"]["digest"] != item["digest"] or record["replacement"] != found:
        return "what stands in its redacted content's place is not what is on record"
    return None


def item_hash(thread, parent, item):
    return h(
        text("threadkeep.item.v1")
        + text(thread)
        + lp(parent)
        + uid(item["id"])
        + opt(item["turn"], number)
        + uid(item["writer"])
        + number(item["epoch"])
        + number(item["tick"])
        + number(item["created_at"])
        + lp(bytes.fromhex(item["digest"]))
        + count(len(item["sources"]))
        + b"".join(uid(source) for source in item["sources"])
    )


def heads_digest(heads):
    data = text("threadkeep.heads.v1") + count(len(heads))
    for head in heads:
        data += text(head["thread"])
        data += opt(head["item"], lambda at: uid(at["branch"]) + number(at["depth"]) + lp(bytes.fromhex(at["hash"])))
        data += number(head["tick"]) + number(head["epoch"])
    return h(data)


def purge_hash(store, purge):
    return h(
        text("threadkeep.purge.v1")
        + uid(store)
        + number(purge["number"])
        + lp(bytes.fromhex(purge["prev"]))
        + text(purge["thread"])
        + number(purge["epoch"])
        + number(purge["at"])
    )


def redaction_hash(store, record):
    def item(at):
        return uid(at["branch"]) + number(at["depth"]) + uid(at["id"]) + lp(bytes.fromhex(at["digest"]))

    return h(
        text("threadkeep.redaction.v1")
        + uid(store)
        + number(record["number"])
        + lp(bytes.fromhex(record["prev"]))
        + text(record["thread"])
        + opt(record["item"], item)
        + opt(record["replacement"], lambda digest: lp(bytes.fromhex(digest)))
        + opt(record["rule"], text)
        + text(record["by"])
        + text(record["reason"])
        + number(record["at"])
    )


def seal_preimage(store, seal):
    return (
        text("threadkeep.seal.v1")
        + uid(store)
        + number(seal["number"])
        + lp(bytes.fromhex(seal["prev"]))
        + number(seal["at"])
        + lp(bytes.fromhex(seal["key"]))
        + number(seal["heads"])
        + lp(bytes.fromhex(seal["digest"]))
        + number(seal["purges"])
        + lp(bytes.fromhex(seal["purge_hash"]))
    )


def voucher_preimage(key):
    return (
        text("threadkeep.key.v1")
        + lp(bytes.fromhex(key["public"]))
        + lp(bytes.fromhex(key["vouched_by"]["public"]))
        + number(key["created_at"])
    )


def is_signed(public, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), message)
        return True
    except (InvalidSignature, ValueError):
        return False


def key_id(public):
    return h(bytes.fromhex(public)).hex()[:16]


class File:
    """A file of lines, taken apart."""

    def __init__(self, path):
        self.keys, self.records, self.seals, self.heads = [], [], [], {}
        self.branches, self.items = [], {}
        with open(path, encoding="utf-8") as lines:
            self.header = json.loads(next(lines))
            if self.header.get("threadkeep") not in ("proof", "anchors") or self.header.get("version") != 1:
                raise ValueError("it is neither a proof nor a file of anchors")
            for line in lines:
                ((what, body),) = json.loads(line).items()
                if what == "head":
                    self.heads.setdefault(body["seal"], []).append(body)
                elif what == "item":
                    self.items.setdefault(body["branch"], []).append(body)
                elif what in ("purge", "redaction"):
                    self.records.append((what, body))
                else:
                    {"key": self.keys, "seal": self.seals, "branch": self.branches}[what].append(body)
        self.store = self.header["store"]
        self.thread = self.header.get("thread")


def check_chain(proof, broken):
    """Computes every digest and every hash of the thread anew; gives the hash at every address."""
    at = {}
    redactions = {body["number"]: body for what, body in proof.records if what == "redaction"}
    for branch in proof.branches:
        name, parent = branch["id"], branch["parent"]
        if parent is None:
            before = genesis(branch["thread"])
        else:
            before = at.get((parent["branch"], parent["depth"]))
            if before is None:
                broken.append(f"branch {name}: the item that it continues is missing")
        depth = branch["base"]
        for item in proof.items.get(name, []):
            place = f"branch {name} depth {item['depth']}"
            if item["depth"] != depth:
                broken.append(f"{place}: expected depth {depth}")
            depth = item["depth"] + 1
            if item["chain"] != 1:
                broken.append(f"{place}: chain version {item['chain']} is not known")
            problem = content_problem(item, redactions)
            if problem:
                broken.append(f"{place}: {problem}")
            if before is not None and item_hash(branch["thread"], before, item).hex() != item["hash"]:
                broken.append(f"{place}: its hash does not follow")
            before = bytes.fromhex(item["hash"])
            at[(name, item["depth"])] = before
        if depth != branch["tip"] + 1:
            broken.append(f"branch {name}: it ends before depth {branch['tip']}")
    return at


def check_seals(file, trusted, broken):
    """Checks the seals and the records; gives the numbers of the seals that are believed, and of the last record that they vouch
    for."""
    last, records, sealed = ZEROS, [ZEROS], 0
    for index, (what, record) in enumerate(file.records, 1):
        if record["number"] != index or bytes.fromhex(record["prev"]) != last:
            broken.append(f"{what} {record['number']}: it does not follow")
        last = {"purge": purge_hash, "redaction": redaction_hash}[what](file.store, record)
        records.append(last)
    last, believed = ZEROS, set()
    for index, seal in enumerate(file.seals, 1):
        name, preimage = f"seal {seal['number']}", seal_preimage(file.store, seal)
        heads = file.heads.get(seal["number"], [])
        problems = []
        if seal["number"] != index or bytes.fromhex(seal["prev"]) != last:
            problems.append(f"{name}: it does not follow")
        if not is_signed(seal["key"], seal["signature"], preimage):
            problems.append(f"{name}: its signature does not hold")
        if seal["heads"] != len(heads) or heads_digest(heads).hex() != seal["digest"]:
            problems.append(f"{name}: what it states was changed")
        if seal["purges"] >= len(records) or records[seal["purges"]].hex() != seal["purge_hash"]:
            problems.append(f"{name}: the record of purges and redactions was changed")
        if not problems and seal["key"] in trusted:
            believed.add(seal["number"])
            sealed = max(sealed, seal["purges"])
        broken += problems
        last = h(preimage)
    return believed, sealed


def check_stated(proof, at, believed, sealed, broken):
    """Compares the thread with what is stated of it; gives what no seal that is believed covers."""
    of_thread = [body["epoch"] for what, body in proof.records if what == "purge" and body["thread"] == proof.thread]
    purged = max(of_thread, default=-1)
    covered, stated = {}, False
    for number_of, heads in proof.heads.items():
        for head in heads:
            if head["thread"] != proof.thread or head["epoch"] <= purged:
                continue
            stated |= number_of in believed
            item = head["item"]
            if item is None:
                continue
            found = at.get((item["branch"], item["depth"]))
            if found is None or found.hex() != item["hash"]:
                broken.append(f"branch {item['branch']} depth {item['depth']}: seal {number_of} states another item")
            elif number_of in believed:
                covered[item["branch"]] = max(item["depth"], covered.get(item["branch"], -1))
    gaps = [] if stated else ["no seal that is believed states the thread"]
    for branch in proof.branches:
        if stated and branch["thread"] == proof.thread and covered.get(branch["id"]) != branch["tip"]:
            gaps.append(f"branch {branch['id']}: no seal covers what follows depth {covered.get(branch['id'])}")
    redacted = [item["redaction"] for items in proof.items.values() for item in items if item.get("redaction")]
    if max(redacted, default=0) > sealed:
        gaps.append("content was redacted, says a record that no seal that is believed vouches for")
    return gaps


def trust(named, keys):
    trusted = set()
    for name in named:
        if os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                name = json.load(file)["public"]
        trusted.add(name.lower())
    while True:
        more = {
            key["public"]
            for key in keys
            if key.get("vouched_by")
            and key["vouched_by"]["public"] in trusted
            and is_signed(key["vouched_by"]["public"], key["vouched_by"]["signature"], voucher_preimage(key))
        }
        if more <= trusted:
            return trusted
        trusted |= more


def main():
    parser = argparse.ArgumentParser(description="Verifies a proof or a file of anchors of Threadkeep.")
    parser.add_argument("file")
    parser.add_argument("--trust", action="append", default=[], metavar="KEY")
    args = parser.parse_args()
    try:
        file = File(args.file)
        trusted = trust(args.trust, file.keys)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        print(f"{args.file}: {error!r}", file=sys.stderr)
        return 2
    broken = [f"key {key['id']}: its id is another one" for key in file.keys if key_id(key["public"]) != key["id"]]
    try:
        believed, sealed = check_seals(file, trusted, broken)
        at = check_chain(file, broken)
        gaps = check_stated(file, at, believed, sealed, broken) if file.thread else []
    except (ValueError, KeyError, TypeError) as error:
        broken.append(f"a field can't be read: {error!r}")
        believed, at, gaps = set(), {}, []
    verdict = "invalid" if broken else "not_provable" if gaps else "valid"
    print(
        json.dumps(
            {
                "verdict": verdict,
                "store": file.store,
                "thread": file.thread,
                "items": len(at),
                "seals": len(file.seals),
                "believed": len(believed),
                "broken": broken,
                "not_provable": gaps,
            }
        )
    )
    return 5 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
