"""How each agent is run without an account: one class per agent, with `version`, `listed`, `resume` and `history`."""

import json
import os
import select
import subprocess
import time

SECONDS = 120


def texts(value):
    """All texts of a document in order, with every run of space as one."""
    if isinstance(value, str):
        yield " ".join(value.split())
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts(part)


class Agent:
    name = ""
    program = ""

    def __init__(self, root):
        self.binary = str(root / "node_modules" / ".bin" / self.program)

    def version(self):
        done = subprocess.run([self.binary, "--version"], capture_output=True, text=True, timeout=SECONDS)
        return done.stdout.strip()

    def run(self, arguments, project, environment):
        base = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "TERM": "dumb"}
        done = subprocess.run([self.binary, *arguments], cwd=project, env={**base, **environment}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS)
        return done.stdout

    def listed(self, model, home, project):
        """The sessions that the agent lists, or nothing where it can't be asked."""
        return None


class Codex(Agent):
    name = "codex"
    program = "codex"

    def configure(self, model, home):
        (home / "config.toml").write_text(
            # A rollout may name its provider, so the mock stands in for the one that it can name.
            f'model = "mock-model"\nopenai_base_url = "{model.address}/v1"\n'
        )

    def listed(self, model, home, project):
        self.configure(model, home)
        server = subprocess.Popen(
            [self.binary, "app-server"], cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(project.parent), "CODEX_HOME": str(home)})
        try:
            call(server, 1, "initialize", {"clientInfo": {"name": "check", "title": "check", "version": "0"}})
            server.stdin.write(b'{"method":"initialized"}\n')
            found = call(server, 2, "thread/list", {"limit": 100}).get("result", {}).get("data", [])
            return [thread["id"] for thread in found]
        finally:
            server.terminate()
            server.wait()

    def resume(self, model, home, project, export, prompt):
        self.configure(model, home)
        return self.run(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "resume",
                         export["session"], prompt], project, {"CODEX_HOME": str(home), "CODEX_API_KEY": "x"})

    def history(self, asked):
        return "\n".join(texts(asked.get("input")))


class ClaudeCode(Agent):
    name = "claude-code"
    program = "claude"

    def resume(self, model, home, project, export, prompt):
        return self.run(
            ["-p", "--dangerously-skip-permissions", *export["command"][1:], prompt], project,
            {"CLAUDE_CONFIG_DIR": str(home), "ANTHROPIC_BASE_URL": model.address, "ANTHROPIC_API_KEY": "x",
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"})

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))


def call(server, number, method, parameters):
    """Asks an app server, and gives its answer."""
    request = {"id": number, "method": method, "params": parameters}
    server.stdin.write((json.dumps(request) + "\n").encode())
    server.stdin.flush()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ready, _, _ = select.select([server.stdout], [], [], 1)
        line = server.stdout.readline() if ready else b""
        answer = json.loads(line) if line.strip() else {}
        if answer.get("id") == number:
            return answer
    return {}


AGENTS = {agent.name: agent for agent in (Codex, ClaudeCode)}
