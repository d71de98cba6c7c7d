//! A thread as a Markdown document.

use threadkeep::{Item, Kind, Part, Role, Thread, View};

use crate::conversation;
use crate::errors::Failure;
use crate::human;
use crate::output::Output;
use crate::text;

/// Writes the document's beginning.
pub(crate) fn write_head(out: &mut Output, thread: &Thread) -> Result<(), Failure> {
    let details = &thread.details;
    out.line(format!("# {}", text::one_line(thread.name())))?;
    out.line("")?;
    let facts = [
        ("Thread", Some(format!("`{}`", thread.id))),
        ("Agent", details.agent.clone()),
        ("Model", details.model.clone()),
        ("Workspace", Some(thread.workspace_name.clone())),
        ("Created", Some(thread.created_at.to_string())),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact.filter(|fact| !fact.is_empty()) {
            out.line(format!("- {name}: {}", text::one_line(&fact)))?;
        }
    }
    Ok(())
}

/// Writes an item; consecutive items of one speaker share a heading.
pub(crate) fn write_item(out: &mut Output, item: &Item, view: &View, speaker: &mut String) -> Result<(), Failure> {
    let now = heading(item, view);
    if *speaker != now {
        out.line(format!("\n## {now}"))?;
        *speaker = now;
    }
    for part in &view.parts {
        let block = block(part);
        if !block.is_empty() {
            out.line(format!("\n{block}"))?;
        }
    }
    Ok(())
}

/// Writes the document's end.
pub(crate) fn write_end(out: &mut Output, hidden: u64) -> Result<(), Failure> {
    if hidden > 0 {
        let left_out = human::counted(hidden, "event or setting is", "events and settings are");
        out.line(format!("\n---\n\n*{left_out} left out.*"))?;
    }
    Ok(())
}

fn heading(item: &Item, view: &View) -> String {
    let role = item.role.as_ref().or(view.role.as_ref());
    let word = match (&item.kind, role) {
        (Kind::Compaction, _) => "summary".to_owned(),
        (Kind::ToolCall | Kind::ToolResult | Kind::Reasoning, _) => Role::Assistant.to_string(),
        (_, Some(role)) => role.to_string(),
        (kind, None) => kind.to_string(),
    };
    let word = text::one_line(&word);
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn block(part: &Part) -> String {
    match part {
        Part::Text { text } => text::clean(text).trim_end().to_owned(),
        Part::Reasoning { text } => quote(&text::clean(text)),
        Part::ToolCall { name, arguments, .. } => {
            let language = if arguments.trim_start().starts_with('{') { "json" } else { "" };
            format!("**{}**\n\n{}", text::one_line(name), fence(arguments, language))
        }
        Part::ToolResult { output, is_error, .. } => {
            let title = if *is_error { "*Failed:*\n\n" } else { "" };
            format!("{title}{}", fence(output, ""))
        }
        Part::Media { media_type, bytes } => conversation::media(media_type, *bytes),
        Part::Note { text } => format!("*{}*", text::one_line(text)),
        other => text::one_line(&format!("{other:?}")),
    }
}

/// Every line as one of a quotation.
pub(crate) fn quote(words: &str) -> String {
    let lines = words.trim_end().lines();
    lines.map(|line| if line.is_empty() { ">".to_owned() } else { format!("> {line}") }).collect::<Vec<_>>().join("\n")
}

/// A code block whose fence is longer than any run of backticks in it.
pub(crate) fn fence(words: &str, language: &str) -> String {
    let words = text::clean(words);
    let longest = words.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}{language}\n{}\n{fence}", words.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::{fence, quote};

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fence("a\n", "sh"), "```sh\na\n```");
        assert_eq!(fence("````\nb", ""), "`````\n````\nb\n`````");
        assert_eq!(fence("\x1b[0m", ""), "```\n␛[0m\n```");
    }

    #[test]
    fn thoughts_are_quoted_line_by_line() {
        assert_eq!(quote("one\n\ntwo\n"), "> one\n>\n> two");
    }
}
