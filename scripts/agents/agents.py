"""How each agent is run without an account: one class per agent, with `version`, `listed`, `resume` and `history`."""

import json
import os
import pathlib
import pty
import select
import subprocess
import time

from mock_model import ANSWER

SECONDS = 120
# After so long without anything drawn, a program in a terminal waits for what is typed.
QUIET = 4


def texts(value):
    """All texts of a document in order, with every run of space as one."""
    if isinstance(value, str):
        yield " ".join(value.split())
        try:
            # Outputs of old calls are documents of their own.
            yield from texts(json.loads(value)) if value.startswith("{") else ()
        except ValueError:
            pass
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
        return (done.stdout or done.stderr).strip()

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


class Pi(Agent):
    name = "pi"
    program = "pi"

    def resume(self, model, home, project, export, prompt):
        host = {"baseUrl": f"{model.address}/v1", "api": "openai-completions", "apiKey": "x", "models": [
            {"id": "mock-model", "name": "mock-model", "reasoning": False, "input": ["text", "image"],
             "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
             "contextWindow": 128000, "maxTokens": 4096}]}
        (home / "models.json").write_text(json.dumps({"providers": {"mock": host}}))
        return self.run(["-p", "--provider", "mock", "--model", "mock-model", *export["command"][1:], prompt],
                        project, {"PI_CODING_AGENT_DIR": str(home), "PI_OFFLINE": "1"})

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))


class QwenCode(Agent):
    name = "qwen-code"
    program = "qwen"

    def resume(self, model, home, project, export, prompt):
        return self.run(["--auth-type", "openai", "-y", *export["command"][1:], "-p", prompt], project, {
            "QWEN_RUNTIME_DIR": str(home), "OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{model.address}/v1",
            "OPENAI_MODEL": "mock-model"})

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))


class CopilotCli(Agent):
    name = "copilot-cli"
    program = "copilot"

    def resume(self, model, home, project, export, prompt):
        return self.run([*export["command"][1:], "-p", prompt, "--allow-all-tools"], project, {
            "COPILOT_HOME": str(home), "COPILOT_PROVIDER_BASE_URL": f"{model.address}/v1",
            "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_API_KEY": "x", "COPILOT_MODEL": "mock-model",
            "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"})

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))


class Cline(Agent):
    name = "cline"
    program = "cline"

    def environment(self, home):
        return {"CLINE_DIR": str(home)}

    def resume(self, model, home, project, export, prompt):
        environment = self.environment(home)
        # It gives sessions ids of its own, so only the command names it.
        listed = self.run(["history", "--json", "--limit", "500"], project, environment)
        if f'"sessionId":"{export["command"][-1]}"' not in listed:
            return f"it is not listed: {listed}"
        self.run(["auth", "-p", "openai", "-k", "x", "-m", "mock-model", "-b", f"{model.address}/v1"], project, environment)
        written = pathlib.Path(export["file"])
        try:
            # It goes on with a session in a terminal alone.
            return typed([self.binary, "-P", "openai", "-m", "mock-model", *export["command"][1:]], project, environment,
                         prompt, lambda: ANSWER in written.read_text().partition(prompt)[2])
        finally:
            self.run(["hub", "stop"], project, environment)

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))


def typed(command, project, environment, prompt, is_done):
    """Runs a program in a terminal of its own and types a prompt when nothing more is drawn; gives what was drawn."""
    ours, theirs = pty.openpty()
    base = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    program = subprocess.Popen(command, cwd=project, env={**base, **environment}, stdin=theirs, stdout=theirs,
                               stderr=theirs, start_new_session=True)
    os.close(theirs)
    drawn, keys, end = b"", [prompt.encode(), b"\r"], time.monotonic() + SECONDS
    last = time.monotonic()
    try:
        while time.monotonic() < end and program.poll() is None and not (not keys and is_done()):
            ready, _, _ = select.select([ours], [], [], 0.2)
            if ready:
                drawn += os.read(ours, 65536)
                last = time.monotonic()
            if keys and drawn and time.monotonic() > last + QUIET:
                os.write(ours, keys.pop(0))
                last = time.monotonic()
    except OSError:
        pass  # The program has closed its terminal.
    finally:
        program.terminate()
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        os.close(ours)
    return drawn.decode(errors="replace")


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


AGENTS = {agent.name: agent for agent in (Codex, ClaudeCode, Pi, QwenCode, CopilotCli, Cline)}
