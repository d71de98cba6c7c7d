"""How each agent is run without an account: one class per agent, with `version`, `take_in`, `listed`, `resume`, `history` and `written`."""

import functools
import json
import os
import pathlib
import pty
import select
import signal
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


def thoughts(value, is_thought=False):
    """All texts of a record that are thoughts, with every run of space as one."""
    if isinstance(value, str):
        yield from (" ".join(value.split()),) if is_thought and value else ()
    elif isinstance(value, list):
        for part in value:
            yield from thoughts(part, is_thought)
    elif isinstance(value, dict):
        is_thought = is_thought or value.get("type") in ("thinking", "reasoning") or value.get("thought") is True
        for key, part in value.items():
            if not is_thought or key in ("text", "thinking", "subject", "description", "summary"):
                yield from thoughts(part, is_thought or key in ("thoughts", "reasoningText"))


class Agent:
    name = ""
    program = ""

    def __init__(self, root):
        self.binary = str(root / "node_modules" / ".bin" / self.program)

    def own_home(self, home):
        """The agent's own folder, of which `environment` tells it."""
        return home

    @functools.cache
    def version(self):
        done = subprocess.run([self.binary, "--version"], capture_output=True, text=True, timeout=SECONDS)
        return (done.stdout or done.stderr).strip().partition("\n")[0]

    def run(self, arguments, project, environment):
        """Runs the program to its end, and gives what it said; what still runs after a while is ended with all that it began."""
        base = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "TERM": "dumb"}
        process = subprocess.Popen([self.binary, *arguments], cwd=project, env={**base, **environment}, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            return process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return (process.communicate()[0] or "") + f"\n(ended after {SECONDS} seconds)"

    def take_in(self, model, home, project, export):
        """Lets the agent take in a session that lies elsewhere, for agents whose sessions have no place of their own."""

    def listed(self, model, home, project):
        """The sessions that the agent lists, or nothing where it can't be asked."""
        return None

    def written(self, home, export):
        """Where the agent writes what comes behind the session."""
        return pathlib.Path(export["file"])


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


class GeminiCli(Agent):
    name = "gemini-cli"
    program = "gemini"

    keeps_all = False

    def take_in(self, model, home, project, export):
        # At its start the program removes its own sessions that are older than a month, as the samples are.
        self.keeps_all = export["records"] > 0

    def environment(self, model, home):
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                    "general": {"enableAutoUpdate": False, **({"sessionRetention": {"enabled": False}} if self.keeps_all else {})}, "privacy": {"usageStatisticsEnabled": False}}
        (home / ".gemini").mkdir(parents=True, exist_ok=True)
        (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
        return {"GEMINI_CLI_HOME": str(home), "GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": model.address,
                "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}

    def trusting(self):
        """Since some version the program asks whether it may trust the folder."""
        return ["--skip-trust"] if int(self.version().split(".")[1]) > 40 else []

    def listed(self, model, home, project):
        said = self.run([*self.trusting(), "--list-sessions"], project, self.environment(model, home))
        return [line.rsplit("[", 1)[1].rstrip("]") for line in said.splitlines() if line.endswith("]")]

    def resume(self, model, home, project, export, prompt):
        return self.run([*self.trusting(), "--model", "gemini-2.5-pro", "-y", *export["command"][1:], "-p", prompt], project,
                        self.environment(model, home))

    def history(self, asked):
        return "\n".join(texts(asked.get("contents")))


class OpenCode(Agent):
    name = "opencode"
    program = "opencode"

    def own_home(self, home):
        return home / "opencode"

    def environment(self, model, home):
        host = {"npm": "@ai-sdk/openai-compatible", "name": "mock",
                "options": {"baseURL": f"{model.address}/v1", "apiKey": "x"},
                "models": {"mock-model": {"name": "mock-model", "attachment": True, "tool_call": True,
                                          "modalities": {"input": ["text", "image"], "output": ["text"]}}}}
        settings = {"provider": {"mock": host}, "model": "mock/mock-model", "small_model": "mock/mock-model",
                    "autoupdate": False, "share": "disabled"}
        folder = home / "config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(json.dumps(settings))
        return {"XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"),
                "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache"),
                "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}

    def take_in(self, model, home, project, export):
        return self.run(["import", export["file"]], project, self.environment(model, home))

    def listed(self, model, home, project):
        said = self.run(["session", "list", "--format", "json"], project, self.environment(model, home))
        begin = said.find("[")
        return [session["id"] for session in json.loads(said[begin:])] if begin >= 0 else []

    def resume(self, model, home, project, export, prompt):
        return self.run(["run", "--model", "mock/mock-model", *export["command"][1:], prompt], project,
                        self.environment(model, home))

    def history(self, asked):
        return "\n".join(texts(asked.get("messages")))

    def written(self, home, export):
        return home / "opencode" / "opencode.db"


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


AGENTS = {agent.name: agent for agent in (Codex, ClaudeCode, GeminiCli, OpenCode, CopilotCli, Pi, QwenCode, Cline)}
