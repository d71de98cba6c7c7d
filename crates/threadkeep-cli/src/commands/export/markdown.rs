//! A thread as a Markdown document, for places that show Markdown: what tools did is folded where details can be.

use std::fmt::Write as _;

use super::prose::{escape, to_markdown};
use super::share::{Entry, Extract, Foot, Head, Piece, Sheet, Speaker, anchor, moment, tokens};
use crate::markdown::{fence, quote};
use crate::text;

/// The document.
#[derive(Debug, Default)]
pub(super) struct Markdown;

impl Sheet for Markdown {
    fn head(&mut self, head: &Head) -> String {
        let mut out = format!("# {}\n\n", plain(&head.title));
        for (name, fact) in &head.facts {
            let _ = writeln!(out, "- {name}: {}", plain(fact));
        }
        out.push_str("\n---\n");
        out
    }

    fn entry(&mut self, entry: &Entry) -> String {
        let id = anchor(entry.depth);
        let mut out = match entry.speaker {
            // Calls and results stand under the answer that they belong to.
            Speaker::Tool => format!("\n<a id=\"{id}\"></a>\n"),
            speaker => {
                let usage = entry.usage.map_or_else(String::new, |usage| format!(" · {}", tokens(usage)));
                let moment = moment(entry.time);
                format!("\n<a id=\"{id}\"></a>\n\n## {} · @{} · {moment}{usage}\n", speaker.word(), entry.depth)
            }
        };
        for piece in &entry.pieces {
            put_piece(&mut out, piece, entry.speaker);
        }
        for note in &entry.notes {
            let _ = writeln!(out, "\n*{}*", plain(note));
        }
        out
    }

    fn foot(&mut self, foot: &Foot) -> String {
        format!("\n---\n\n{}\n", plain(&foot.sentences.join(" ")))
    }

    fn shows_pictures(&self) -> bool {
        false
    }
}

fn put_piece(out: &mut String, piece: &Piece, speaker: Speaker) {
    match piece {
        Piece::Prose(words) if speaker == Speaker::System => put_folded(out, "Instructions", &to_markdown(words)),
        Piece::Prose(words) => {
            let _ = writeln!(out, "\n{}", to_markdown(words));
        }
        Piece::Thought(words) => put_folded(out, "Thinking", &to_markdown(&quote(&text::clean(words)))),
        Piece::Call { name, brief, arguments } => {
            let language = if arguments.text.starts_with(['{', '[']) { "json" } else { "" };
            let summary = format!("→ <b>{}</b> <code>{}</code>", escape(name), escape(brief));
            put_folded(out, &summary, &extract(arguments, language));
        }
        Piece::Result { output, is_error } => {
            let mark = if *is_error { "✗ failed" } else { "← result" };
            let lines = if output.lines == 1 { "1 line".to_owned() } else { format!("{} lines", output.lines) };
            put_folded(out, &format!("{mark}, {lines}"), &extract(output, ""));
        }
        Piece::Picture { media_type, .. } => {
            let _ = writeln!(out, "\n*[{}]*", plain(media_type));
        }
        Piece::Note(words) => {
            let _ = writeln!(out, "\n*{}*", plain(words));
        }
    }
}

fn put_folded(out: &mut String, summary: &str, body: &str) {
    // An empty line in it would end the HTML that it stands in.
    let summary = text::one_line(summary);
    let _ = writeln!(out, "\n<details><summary>{summary}</summary>\n\n{body}\n\n</details>");
}

fn extract(extract: &Extract, language: &str) -> String {
    let mut out = fence(&extract.text, language);
    if let Some(left_out) = &extract.left_out {
        let _ = write!(out, "\n\n*{left_out}*");
    }
    out
}

/// A line of words that means nothing in Markdown.
fn plain(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 8);
    for c in text::one_line(words).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '|' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
