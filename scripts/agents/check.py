#!/usr/bin/env python3
"""Checks exports with the agents themselves: each sample thread is exported into a fresh home, the agent goes on with it, and the
request that a mock model gets must hold the whole history.

    scripts/agents/check.py --threadkeep target/debug/threadkeep [--agent codex] [--installed FOLDER]

The agents are installed from npm into a temporary folder (`versions.json` says which versions), or taken from FOLDER, which has a
folder with `node_modules` per agent. Nothing of this machine's user is read or written. Exits with 1 when a check fails.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import agents
from mock_model import Model

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = HERE.parent.parent / "examples" / "sessions"
PROMPT = "Go on from here, please."


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--threadkeep", required=True)
    arguments.add_argument("--agent", action="append")
    arguments.add_argument("--installed")
    arguments.add_argument("--sessions", action="append", help="other sessions than the examples")
    options = arguments.parse_args()
    threadkeep = str(pathlib.Path(options.threadkeep).resolve())
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        threads = imported(threadkeep, folder, options.sessions or [str(SAMPLES)])
        for name in options.agent or list(agents.AGENTS):
            root = pathlib.Path(options.installed).resolve() / name if options.installed else install(folder, name)
            failures += checked(threadkeep, folder, name, root, threads)
    return 1 if failures else 0


def install(folder, name):
    """Installs an agent with npm."""
    package = json.loads((HERE / "versions.json").read_text())[name]
    root = folder / "agents" / name
    root.mkdir(parents=True)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(root), package],
                   check=True, stdout=subprocess.DEVNULL)
    return root


def imported(threadkeep, folder, sessions):
    """Imports the sessions, and puts behind one of each agent what was said in Threadkeep."""
    run(threadkeep, folder, ["import", *sessions], codes=(0, 8))
    threads = json.loads(run(threadkeep, folder, ["--json", "list", "--limit", "500"]))["threads"]
    threads = [thread for thread in threads if thread["items"] > 1]
    own = [
        {"role": "user", "text": "What did the table say?"},
        {"kind": "tool_call", "content": {"role": "assistant", "parts": [
            {"type": "tool_call", "call_id": "own-1", "name": "read table", "arguments": "{\"row\":7}"}]}},
        {"kind": "tool_result", "content": {"role": "tool", "parts": [
            {"type": "tool_result", "call_id": "own-1", "output": "seven is blue"}]}},
        {"role": "assistant", "text": "Row seven is blue."},
    ]
    lines = "\n".join(json.dumps(line) for line in own)
    run(threadkeep, folder, ["append", "--new", "--id", "born-here", "--title", "Born in Threadkeep"], given=lines)
    for agent in {thread["agent"] for thread in threads}:
        thread = next(thread for thread in threads if thread["agent"] == agent)
        run(threadkeep, folder, ["append", thread["id"]], given=lines)
        fork = json.loads(run(threadkeep, folder, ["--json", "fork", thread["id"], "--title", f"Fork of {agent}"]))
        threads.append({"id": fork["thread"]["id"] if isinstance(fork["thread"], dict) else fork["thread"],
                        "title": f"Fork of {agent}", "agent": agent})
    return threads + [{"id": "born-here", "title": "Born in Threadkeep", "agent": None}]


def run(threadkeep, folder, arguments, given=None, codes=(0,), store="store"):
    command = [threadkeep, "--store", str(folder / store), *arguments]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment)
    if done.returncode not in codes:
        raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def checked(threadkeep, folder, name, root, threads):
    """Checks one agent with all threads; gives the number of failures."""
    agent = agents.AGENTS[name](root)
    print(f"{name} {agent.version()}")
    failures = 0
    for thread in threads:
        work = folder / name / thread["id"]
        project = work / "project"
        project.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        home = work / "home"
        export = json.loads(run(threadkeep, folder, [
            "--json", "continue", thread["id"], "--with", name, "--home", str(home), "--cwd", str(project)],
            codes=(0, 2)) or "{}")
        if "error" in export:
            print(f"  –  {thread['id']}: {export['error']['message']}")
            continue
        model = Model()
        try:
            problems = went_on(threadkeep, folder, agent, thread, export, model, home, project)
        finally:
            model.close()
        failures += bool(problems)
        print(f"  {'✗' if problems else '✓'}  {thread['id']} of {thread['agent'] or 'Threadkeep'}"
              + "".join(f"\n       {problem}" for problem in problems))
    return failures


def went_on(threadkeep, folder, agent, thread, export, model, home, project):
    """Lets the agent go on with an exported session; gives what is wrong."""
    listed = agent.listed(model, home, project)
    output = agent.resume(model, home, project, export, PROMPT)
    asked = [document for _, document in model.requests if PROMPT in json.dumps(document, ensure_ascii=False)]
    if not asked:
        return [f"the agent asked nothing: {output[-400:]}"]
    history = agent.history(asked[0])
    problems = []
    if listed is not None and export["session"] not in listed:
        problems.append("it is not listed")
    wanted = expected(threadkeep, folder, thread)
    position = 0
    for what, text in wanted:
        found = history.find(text, position)
        if found < 0:
            lost = "out of order" if text in history else "missing"
            problems.append(f"{lost}: {what} {text[:70]!r}")
        else:
            position = found
    if pathlib.Path(export["file"]).exists():
        report = json.loads(run(threadkeep, folder, ["--json", "import", export["file"]], codes=(0, 8),
                                store=f"again/{agent.name}/{thread['id']}"))
        if report["items"]["skipped"] or report["problems"]:
            problems.append(f"what the agent wrote behind it is not read: {report['problems']}")
        if PROMPT not in pathlib.Path(export["file"]).read_text():
            problems.append("the agent went on in another file")
    return problems


def expected(threadkeep, folder, thread):
    """What the model must be told: words, calls with a result, and results, from the latest summary on."""
    arguments = ["--json", "show", thread["id"], "--context", "--all"]
    items = json.loads(run(threadkeep, folder, arguments))["items"]
    wanted = []
    for item in items:
        if item["kind"] in ("message", "compaction") and item["role"] in ("user", "assistant"):
            text = " ".join(item["text"].split())
            if text and not text.startswith(("<", "[", "#")):
                wanted.append((item["role"], text))
        elif item["kind"] == "tool_result":
            text = " ".join(item["text"].split())[:60]
            if text:
                wanted.append(("result", text))
    return wanted


if __name__ == "__main__":
    sys.exit(main())
