//! `threadkeep tools`

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use threadkeep::{Hash, ThreadId, Tool, Toolset};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep tools get 019a2284
  threadkeep tools set 019a2284 --file tools.json
  threadkeep tools get 019a2284 --json | threadkeep tools set 019a2290
  echo '[{\"name\":\"read\",\"description\":\"reads a file\",\"input_schema\":{\"type\":\"object\"}}]' |
    threadkeep tools set 019a2284
  threadkeep tools clear 019a2284

A list is a JSON array of tools, or an object with such a `tools`. A tool has a `name`, perhaps
a `description`, and an `input_schema` (or `inputSchema`); all else is kept as it is.";

/// Show and set the tools that a thread's model may call besides those of its agent
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    what: ToolsCommand,
}

#[derive(Debug, Subcommand)]
enum ToolsCommand {
    /// Show a thread's tools in their order
    Get {
        /// The thread
        thread: String,
    },
    /// Put a list of tools in the place of all that the thread has
    Set {
        /// The thread
        thread: String,
        /// The file that the list is read from [default: standard input]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The digest of the list that the thread must have, as `get` shows it
        #[arg(long, value_name = "DIGEST")]
        expect: Option<Hash>,
    },
    /// Take all tools away
    Clear {
        /// The thread
        thread: String,
        /// The digest of the list that the thread must have, as `get` shows it
        #[arg(long, value_name = "DIGEST")]
        expect: Option<Hash>,
    },
}

/// Answers.
pub(super) fn run(args: &ToolsArgs, app: &mut App) -> Outcome {
    match &args.what {
        ToolsCommand::Get { thread } => {
            let store = app.read()?;
            let tools = store.tools(&store.find(thread)?)?;
            write(app, &tools)
        }
        ToolsCommand::Set { thread, file, expect } => {
            let tools = read(file.as_deref())?;
            set(app, thread, tools, *expect)
        }
        ToolsCommand::Clear { thread, expect } => set(app, thread, Vec::new(), *expect),
    }
}

fn set(app: &mut App, thread: &str, tools: Vec<Tool>, expect: Option<Hash>) -> Outcome {
    let store = app.write()?;
    let tools = store.set_tools(&store.find(thread)?, tools, expect)?;
    if app.out.is_json() {
        return write(app, &tools);
    }
    let count = human::counted(tools.tools.len() as i128, "tool", "tools");
    app.out.line(format!("{count}  {}", app.out.paint(Ink::Dim, &tools.digest.to_string())))?;
    Ok(Code::Done)
}

fn write(app: &mut App, tools: &Toolset) -> Outcome {
    if app.out.is_json() {
        app.out.document(&Document::of(tools)?)?;
        return Ok(Code::Done);
    }
    if tools.tools.is_empty() {
        app.out.line("The thread has no tools of its own.")?;
        return Ok(Code::Done);
    }
    let mut table = Table::new(&[("tool", Align::Left), ("takes", Align::Flexible), ("does", Align::Flexible)]);
    for tool in &tools.tools {
        table.row(vec![
            cell(Ink::Tool, text::cut(&text::one_line(&tool.name), 40)),
            cell(Ink::Dim, takes(&tool.input_schema)),
            cell(Ink::Plain, text::one_line(tool.description.as_deref().unwrap_or_default())),
        ]);
    }
    table.write(&mut app.out)?;
    app.out.line(format!("\n{}", app.out.paint(Ink::Dim, &tools.digest.to_string())))?;
    Ok(Code::Done)
}

/// The properties that a schema names, or the schema itself.
fn takes(schema: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(schema).unwrap_or_default();
    match value.get("properties").and_then(|properties| properties.as_object()) {
        Some(properties) => properties.keys().cloned().collect::<Vec<_>>().join(", "),
        None => text::one_line(schema),
    }
}

/// What `--json` prints: what is JSON in it stands as it is stored.
#[derive(Debug, Serialize)]
struct Document<'a> {
    thread: &'a ThreadId,
    digest: Hash,
    tools: Vec<Shown<'a>>,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    name: &'a str,
    description: Option<&'a str>,
    input_schema: &'a RawValue,
    extra: Option<&'a RawValue>,
}

impl<'a> Document<'a> {
    fn of(tools: &'a Toolset) -> Result<Self, Failure> {
        let shown = |tool: &'a Tool| {
            Ok(Shown {
                name: &tool.name,
                description: tool.description.as_deref(),
                input_schema: serde_json::from_str(&tool.input_schema)?,
                extra: tool.extra.as_deref().map(serde_json::from_str).transpose()?,
            })
        };
        let list = tools.tools.iter().map(shown).collect::<Result<_, serde_json::Error>>()?;
        Ok(Self { thread: &tools.thread, digest: tools.digest, tools: list })
    }
}

/// A tool as it is given.
#[derive(Debug, Deserialize)]
struct GivenTool {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(alias = "inputSchema")]
    input_schema: Box<RawValue>,
}

fn read(file: Option<&Path>) -> Result<Vec<Tool>, Failure> {
    let mut bytes = Vec::new();
    let (name, read) = match file {
        None => ("standard input".to_owned(), io::stdin().lock().read_to_end(&mut bytes).map(drop)),
        Some(file) => (file.display().to_string(), fs::read(file).map(|read| bytes = read)),
    };
    read.map_err(|error| Report::usage(format!("{name}: {error}")))?;
    let wrong = |what: String| Failure::from(Report::usage(format!("{name}: {what}")));
    let list: Vec<Box<RawValue>> = given(&bytes).map_err(|error| wrong(format!("it is no list of tools: {error}")))?;
    let tool = |(position, raw): (usize, Box<RawValue>)| {
        tool(&raw).map_err(|error| wrong(format!("tool {position}: {error}")))
    };
    list.into_iter().enumerate().map(tool).collect()
}

fn given(bytes: &[u8]) -> serde_json::Result<Vec<Box<RawValue>>> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return serde_json::from_slice(bytes);
    }
    let mut within: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(bytes)?;
    let tools = within.remove("tools").unwrap_or_default();
    serde_json::from_str(tools.get())
}

fn tool(raw: &RawValue) -> serde_json::Result<Tool> {
    let GivenTool { name, description, input_schema } = serde_json::from_str(raw.get())?;
    let mut rest: BTreeMap<String, Box<RawValue>> = serde_json::from_str(raw.get())?;
    rest.retain(|key, _| !matches!(key.as_str(), "name" | "description" | "input_schema" | "inputSchema"));
    let extra = match rest.remove("extra") {
        Some(extra) if rest.is_empty() => Some(extra.get().to_owned()).filter(|extra| extra != "null"),
        extra => {
            rest.extend(extra.map(|extra| ("extra".to_owned(), extra)));
            if rest.is_empty() { None } else { Some(serde_json::to_string(&rest)?) }
        }
    };
    Ok(Tool { name, description, input_schema: input_schema.get().to_owned(), extra })
}
