#!/usr/bin/env python3
"""Checks exports with the agents themselves: each sample thread is exported into a fresh home, the agent lists it and goes on with
it, the request that a mock model gets must hold the whole history, and what the agent wrote behind it must be read as growth.

    scripts/agents/check.py --threadkeep target/debug/threadkeep [--agent codex] [--installed FOLDER]
        [--from pi] [--few] [--older] [--results FILE] [--report docs/agents.md]

The agents are installed from npm (`versions.json` says which versions) into FOLDER, where what is there already is taken as it is, or
into a temporary folder. --few takes one thread of each agent; --older takes the other versions of each agent, with a session of its own and
the one born in Threadkeep.
Nothing of this machine's user is read or written. What was found is added to --results, and --report writes that as tables between
the marks of a document. Exits with 1 when a check fails.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import agents
import report
from mock_model import ANSWER, Model

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = HERE.parent.parent / "examples" / "sessions"
# The folder that the samples are of; a folder of the check stands in its place.
FOLDER = "/home/dev/webshop"
PROMPT = "Go on from here, please."
# What is shown of a picture, and of a call.
PICTURE = re.compile(r"\[image[^]\n]*\]")
CALL = re.compile(r"\S+ \{")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--threadkeep", required=True)
    arguments.add_argument("--agent", action="append", help="check these alone")
    arguments.add_argument("--from", dest="born", action="append", help="with threads of these alone")
    arguments.add_argument("--few", action="store_true", help="with one thread of each agent")
    arguments.add_argument("--installed", help="a folder for the agents, which stays")
    arguments.add_argument("--older", action="store_true", help="check the other versions")
    arguments.add_argument("--sessions", action="append", help="other sessions than the examples")
    arguments.add_argument("--results", help="a file for what was found, which is added to")
    arguments.add_argument("--report", help="a document for the tables")
    options = arguments.parse_args()
    threadkeep = str(pathlib.Path(options.threadkeep).resolve())
    results = report.Results(options.results)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check = Check(threadkeep, folder, options.sessions or [str(SAMPLES)])
        for name in options.agent or list(agents.AGENTS):
            for package in packages(name)[1:] if options.older else packages(name)[:1]:
                root = install(pathlib.Path(options.installed or folder / "agents").resolve(), name, package)
                failures += check.agent(name, package, root, options, results)
                results.save()
    if options.report:
        report.write(results, pathlib.Path(options.report))
    return 1 if failures else 0


def packages(name):
    """The versions of an agent: first the one that all is checked with."""
    known = json.loads((HERE / "versions.json").read_text())[name]
    return [known] if isinstance(known, str) else known


def install(folder, name, package):
    """Installs an agent with npm, unless it is there."""
    root = folder / (name if package == packages(name)[0] else f"{name}-{package.rsplit('@', 1)[1]}")
    if not (root / "node_modules" / ".bin").exists():
        root.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(root), package],
                       check=True, stdout=subprocess.DEVNULL, timeout=600)
    return root


class Check:
    """A store with the sample threads, and one project that all of them are of."""

    def __init__(self, threadkeep, folder, sessions):
        self.threadkeep, self.folder = threadkeep, folder
        self.project = folder / "home" / "webshop"
        self.project.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)
        copies = [str(self.copied(pathlib.Path(path), number)) for number, path in enumerate(sessions)]
        self.run(["import", *copies], codes=(0, 8))
        found = json.loads(self.run(["--json", "list", "--limit", "500"]))["threads"]
        self.threads = [thread for thread in found if thread["items"] > 1]
        self.changed = self.went_on_here()

    def copied(self, path, number):
        """Copies sessions, with the folder of the check in the place of theirs."""
        copy = self.folder / "samples" / str(number)
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in files:
            to = copy / file.relative_to(path.parent)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes() if file.suffix in (".db", ".zst") else
                           file.read_bytes().replace(FOLDER.encode(), str(self.project).encode()))
        return copy

    def went_on_here(self):
        """Says something in Threadkeep: in a thread of its own, behind a fork of one thread of each agent, and behind that thread."""
        own = [
            {"role": "user", "text": "What did the table say? 表 🧮"},
            {"kind": "tool_call", "content": {"role": "assistant", "parts": [
                {"type": "tool_call", "call_id": "own-1", "name": "read table", "arguments": "{\"row\":7}"}]}},
            {"kind": "tool_result", "content": {"role": "tool", "parts": [
                {"type": "tool_result", "call_id": "own-1", "output": "seven is blue"}]}},
            {"role": "assistant", "text": "Row seven is blue."},
        ]
        lines = "\n".join(json.dumps(line) for line in own)
        self.run(["append", "--new", "--id", "born-here", "--title", "Born in Threadkeep"], given=lines)
        changed = []
        for agent in sorted({thread["agent"] for thread in self.threads}):
            thread = self.last_of(agent)
            for title in (f"Fork of {agent}", f"Longer fork of {agent}"):
                fork = json.loads(self.run(["--json", "fork", thread["id"], "--title", title]))["thread"]
                changed.append({**thread, "id": fork["id"] if isinstance(fork, dict) else fork, "title": title})
            self.run(["append", changed[-1]["id"]], given=lines)
        self.threads.append({"id": "born-here", "title": "Born in Threadkeep", "agent": "threadkeep"})
        # Behind the agent's own records, in a store of its own: the first one has them as they were.
        subprocess.run(["cp", "-r", str(self.folder / "store"), str(self.folder / "behind")], check=True)
        for agent in sorted({thread["agent"] for thread in self.threads} - {"threadkeep"}):
            self.run(["append", self.last_of(agent)["id"]], given=lines, store="behind")
            changed.append({**self.last_of(agent), "store": "behind"})
        return changed

    def last_of(self, agent):
        """The thread of an agent that shows the most: of the examples the newest whole one, which has a picture."""
        own = [thread for thread in self.threads if thread["agent"] == agent]
        shows = [thread for thread in own if "image" in self.run(["show", thread["id"], "--json", "--raw"])]
        return (shows or own)[0]

    def run(self, arguments, given=None, codes=(0,), store="store"):
        command = [self.threadkeep, "--store", str(self.folder / store), *arguments]
        environment = {**os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment)
        if done.returncode not in codes:
            raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def agent(self, name, package, root, options, results):
        """Checks one agent with all threads; gives the number of failures."""
        agent = agents.AGENTS[name](root)
        version = package.rsplit("@", 1)[1]
        print(f"{name} {version} ({agent.version()})", flush=True)
        threads = self.threads + [thread for thread in self.changed if thread["agent"] == name]
        if options.few:
            shown = [self.last_of(of)["id"] for of in {thread["agent"] for thread in self.threads}]
            threads = [thread for thread in threads if thread["id"] in shown or thread not in self.threads]
        if options.older:
            own = [thread for thread in self.threads if thread["agent"] == name]
            own = [thread for thread in own if thread["id"] == self.last_of(name)["id"]]
            threads = own + [thread for thread in self.threads if thread["agent"] == "threadkeep"]
        failures = 0
        for number, thread in enumerate(threads):
            if options.born and thread["agent"] not in options.born:
                continue
            found = self.thread(agent, thread, self.folder / "work" / package.replace("/", "+") / str(number))
            failures += bool(found["problems"])
            mark = "✗" if found["problems"] else "–" if found.get("refused") else "✓"
            print(f"  {mark}  {thread['id']} of {thread['agent']}: {thread['title'] or ''}{found.get('refused', '')}"
                  + "".join(f"\n       {problem}" for problem in found["problems"]), flush=True)
            results.add(name, version, not options.older, thread["agent"],
                        " ".join([thread.get("store", ""), thread["title"] or "", thread["id"]]).strip(), found)
        return failures

    def thread(self, agent, thread, work):
        """Checks one thread with one agent; gives what is wrong and what was lost."""
        home = work / "home"
        home.mkdir(parents=True)
        store = thread.get("store", "store")
        export = json.loads(self.run([
            "--json", "continue", thread["id"], "--with", agent.name, "--home",
            str(agent.own_home(home)), "--cwd", str(self.project)], codes=(0, 2), store=store) or "{}")
        if "error" in export:
            return {"problems": [], "refused": export["error"]["message"], "losses": []}
        found = {"problems": [], "losses": export.get("losses", []), "is_listed": None, "is_same": None}
        if thread["agent"] == agent.name and thread in self.threads:
            found["is_same"] = self.came_back(thread, export)
        model = Model()
        try:
            self.went_on(agent, thread, store, export, model, home, work, found)
        finally:
            model.close()
        return found

    def came_back(self, thread, export):
        """Whether an agent's own session is given back as it is."""
        before = self.run(["export", thread["id"], "--verbatim"])
        after = pathlib.Path(export["file"]).read_text()
        if before == after:
            return True
        try:
            return json.loads(before)["messages"] == json.loads(after)["messages"]
        except ValueError:
            return False

    def went_on(self, agent, thread, store, export, model, home, work, found):
        """Lets the agent go on with an exported session; notes what is wrong."""
        problems, again = found["problems"], str(work.relative_to(self.folder) / "again")
        told = agent.take_in(model, home, self.project, export)
        listed = agent.listed(model, home, self.project)
        session = export["session"]
        if listed is not None:
            found["is_listed"] = session in listed
            if not found["is_listed"]:
                problems.append(f"it is not listed: {(told or '')[-300:]}")
        written = agent.written(home, export)
        before = self.path(again, written)
        output = agent.resume(model, home, self.project, export, PROMPT)
        asked = [document for _, document in model.requests if PROMPT in json.dumps(document, ensure_ascii=False)]
        if not asked:
            problems.append(f"the agent asked nothing: {(told or '')[-300:]} {output[-400:]}")
            return
        history = max((agent.history(document) for document in asked), key=len)
        problems.extend(missing(self.expected(thread, store), history))
        self.grew(again, written, before, problems)

    def path(self, store, file):
        """Imports what an agent wrote; gives the report, and the items of its thread's path."""
        document = json.loads(self.run(["--json", "import", str(file)], codes=(0, 1, 3, 8), store=store) or "{}")
        try:
            threads = json.loads(self.run(["--json", "list", "--limit", "500"], store=store))["threads"]
        except SystemExit:
            threads = []
        items = {thread["id"]: json.loads(self.run(["--json", "show", thread["id"], "--raw", "--all"], store=store))["items"]
                 for thread in threads}
        return document, items

    def grew(self, store, file, before, problems):
        """What the agent wrote must be read as growth of the same path, once."""
        report, after = self.path(store, file)
        if report.get("problems") or report.get("items", {}).get("skipped"):
            problems.append(f"what the agent wrote is not read: {report.get('problems')}")
        if set(after) != set(before[1]):
            problems.append(f"the agent's file became other threads: {sorted(before[1])} then {sorted(after)}")
            return
        for thread, items in before[1].items():
            old, new = [item["id"] for item in items], [item["id"] for item in after[thread]]
            if new[:len(old)] != old:
                problems.append("what the agent wrote is no growth of the same path")
        texts = json.dumps([item for thread in after for item in after[thread][len(before[1][thread]):]],
                           ensure_ascii=False)
        if PROMPT not in texts or ANSWER not in texts:
            problems.append("what the agent wrote is not in the thread")
        once_more = self.path(store, file)[0]
        if once_more.get("items", {}).get("imported"):
            problems.append(f"a second import brings something: {once_more['items']}")

    def expected(self, thread, store):
        """What the model must be told: words, calls with a result, and results, from the latest summary on."""
        arguments = ["--json", "show", thread["id"], "--context", "--all", "--raw"]
        items = json.loads(self.run(arguments, store=store))["items"]
        wanted = []
        for item in items:
            if item["kind"] in ("message", "compaction") and item["role"] in ("user", "assistant"):
                wanted.extend((item["role"], text) for text in said(item))
            elif item["kind"] == "tool_call" and item["format"] in ("gemini-cli", "opencode"):
                # Its result stands within it.
                wanted.extend(("result", text) for text in said(item))
            elif item["kind"] == "tool_result":
                wanted.append(("result", " ".join(PICTURE.sub("", item["text"]).split())[:60]))
        return wanted


def said(item):
    """The lines of an item: without what stands for pictures and for arguments of calls, and without thoughts."""
    try:
        thoughts = list(agents.thoughts(json.loads(item["content"])))
    except ValueError:
        thoughts = []
    if item["text"].startswith(("<", "[", "#")):
        return
    for line in PICTURE.sub("", item["text"]).splitlines():
        line = " ".join(line.split())
        if line and not CALL.match(line) and not any(line in thought for thought in thoughts):
            yield line


def missing(wanted, history):
    """What is not in the history, or not in its order."""
    problems, position = [], 0
    for what, text in wanted:
        found = history.find(text, position)
        if found < 0:
            lost = "out of order" if text in history else "missing"
            problems.append(f"{lost}: {what} {text[:70]!r}")
        else:
            position = found
    return problems


if __name__ == "__main__":
    sys.exit(main())
