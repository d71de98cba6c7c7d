"""What the checks found, kept in a file, and as tables in a document."""

import datetime
import json
import pathlib

BEGIN = "<!-- checked by scripts/agents/check.py: begin -->"
END = "<!-- checked by scripts/agents/check.py: end -->"
NAMES = {"claude-code": "Claude Code", "codex": "Codex", "gemini-cli": "Gemini CLI", "opencode": "opencode",
         "copilot-cli": "Copilot CLI", "pi": "pi", "qwen-code": "Qwen Code", "threadkeep": "Threadkeep", "cline": "Cline"}


class Results:
    """What was found of each agent, version and thread."""

    def __init__(self, file):
        self.file = pathlib.Path(file) if file else None
        self.found = json.loads(self.file.read_text()) if self.file and self.file.exists() else {}

    def add(self, agent, version, is_main, born, thread, found):
        known = self.found.setdefault(agent, {}).setdefault(version, {"threads": {}})
        known["is_main"] = is_main
        known["date"] = datetime.date.today().isoformat()
        known["threads"][thread] = {"born": born, **found}

    def save(self):
        if self.file:
            self.file.write_text(json.dumps(self.found, ensure_ascii=False, indent=1, sort_keys=True))


def write(results, document):
    """Writes the tables between the marks of a document."""
    text = document.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    document.write_text(before + BEGIN + "\n" + "\n".join(tables(results.found)) + "\n" + END + after)


def tables(found):
    agents = [agent for agent in NAMES if agent in found]
    main = {agent: (version, of) for agent in agents for version, of in found[agent].items() if of["is_main"]}
    born = [name for name in NAMES if any(thread["born"] == name for _, of in main.values()
                                          for thread in of["threads"].values())]
    lines = ["", "| agent | version | checked | lists it | its own session | other versions that take it | other versions that do not |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for agent, (version, of) in main.items():
        others = [(other, of) for other, of in sorted(found[agent].items()) if not of["is_main"]]
        takes = [other + marked(of) for other, of in others if goes_on(of)]
        refuses = [other for other, of in others if not goes_on(of)]
        lines.append(f"| {NAMES[agent]} | {version} | {of['date']} | {asked(of, 'is_listed')} | {same(of)} | "
                     f"{', '.join(takes)} | {', '.join(refuses)} |")
    letters, pairs = {}, {}
    for agent, (_, of) in main.items():
        for name in born:
            pairs[name, agent] = pair([thread for thread in of["threads"].values() if thread["born"] == name], letters)
    lines += ["", "| born in ↓, gone on with in → | " + " | ".join(NAMES[agent] for agent in main) + " |",
              "| --- |" + " --- |" * len(main)]
    lines += [f"| {NAMES[name]} | " + " | ".join(pairs[name, agent] for agent in main) + " |" for name in born]
    lines += ["", "Each is the number of threads that were checked, and what was lost of them:", ""]
    lines += [f"* {letter}: {what}" for what, letter in letters.items()]
    return lines + [""]


def goes_on(of):
    """Whether an agent lists its sessions and tells its model all of them; what it writes behind them is another matter."""
    refused = ("it is not listed", "the agent asked nothing", "missing", "out of order")
    return not any(problem.startswith(refused) for thread in of["threads"].values() for problem in thread["problems"])


def marked(of):
    return " (what it writes branches)" if any(thread["problems"] for thread in of["threads"].values()) else ""


def asked(of, key):
    said = [thread.get(key) for thread in of["threads"].values() if thread.get(key) is not None]
    return "can't be asked" if not said else "yes" if all(said) else f"{sum(said)} of {len(said)}"


def same(of):
    said = [thread["is_same"] for thread in of["threads"].values() if thread.get("is_same") is not None]
    return f"{sum(said)} of {len(said)} as they were" if said else "–"


def pair(threads, letters):
    """One cell: how many threads went well, and what was lost in letters with how often."""
    if not threads:
        return "–"
    good = [thread for thread in threads if not thread["problems"] and not thread.get("refused")]
    lost = {}
    for loss in (loss for thread in threads for loss in thread["losses"]):
        lost[loss["what"]] = lost.get(loss["what"], 0) + loss["count"]
    for what in lost:
        letters.setdefault(what, "abcdefghijklmnopqrstuvwxyz"[len(letters) % 26])
    said = ", ".join(f"{letters[what]} {count}" for what, count in sorted(lost.items(), key=lambda pair: letters[pair[0]]))
    count = str(len(good)) if len(good) == len(threads) else f"**{len(good)} of {len(threads)}**"
    return f"{count}{': ' if said else ''}{said}"
