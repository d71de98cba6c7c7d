//! A thread as a web page in one file: no script, nothing from elsewhere, readable on a phone, in the dark and on paper.

use std::fmt::Write as _;

use super::prose::{escape, to_html};
use super::share::{Entry, Extract, Foot, Head, Piece, Sheet, Speaker, anchor, moment, tokens};

const STYLE: &str = include_str!("page.css");
/// Nothing may be run, and nothing be fetched: whatever else is wrong with the page, a browser keeps to that.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// The page.
#[derive(Debug, Default)]
pub(super) struct Html;

impl Sheet for Html {
    fn head(&mut self, head: &Head) -> String {
        let title = escape(&head.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"robots\" content=\"noindex\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<header class=\"top\">\n<h1 dir=\"auto\">{title}</h1>\n<dl>\n"
        );
        for (name, fact) in &head.facts {
            let _ = writeln!(out, "<div><dt>{}</dt><dd dir=\"auto\">{}</dd></div>", escape(name), escape(fact));
        }
        out.push_str("</dl>\n</header>\n<main>\n");
        out
    }

    fn entry(&mut self, entry: &Entry) -> String {
        let id = anchor(entry.depth);
        let mut out = format!("<article class=\"{}\" id=\"{id}\">\n<header>", class(entry.speaker));
        let _ = write!(
            out,
            "<span class=\"who\">{}</span> <a class=\"at\" href=\"#{id}\">@{}</a> <time datetime=\"{}\">{}</time>",
            entry.speaker.word(),
            entry.depth,
            escape(&entry.time.to_string()),
            escape(&moment(entry.time)),
        );
        if let Some(usage) = entry.usage {
            let _ = write!(out, " <span class=\"tokens\">{}</span>", escape(&tokens(usage)));
        }
        out.push_str("</header>\n");
        for piece in &entry.pieces {
            put_piece(&mut out, piece, entry.speaker);
        }
        for note in &entry.notes {
            let _ = writeln!(out, "<p class=\"note\" dir=\"auto\">{}</p>", escape(note));
        }
        out.push_str("</article>\n");
        out
    }

    fn foot(&mut self, foot: &Foot) -> String {
        let mut out = String::from("</main>\n<footer>\n");
        for sentence in &foot.sentences {
            let _ = writeln!(out, "<p>{}</p>", escape(sentence));
        }
        out.push_str("</footer>\n</body>\n</html>\n");
        out
    }

    fn shows_pictures(&self) -> bool {
        true
    }
}

fn class(speaker: Speaker) -> &'static str {
    match speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::System => "system",
        Speaker::Tool => "tool",
        Speaker::Summary => "summary",
        Speaker::Nobody => "nobody",
    }
}

fn put_piece(out: &mut String, piece: &Piece, speaker: Speaker) {
    match piece {
        // Instructions are long, and few readers want them.
        Piece::Prose(words) if speaker == Speaker::System => {
            let _ = writeln!(
                out,
                "<details><summary>Instructions</summary><div class=\"prose\" dir=\"auto\">\n{}</div></details>",
                to_html(words)
            );
        }
        Piece::Prose(words) => {
            let _ = writeln!(out, "<div class=\"prose\" dir=\"auto\">\n{}</div>", to_html(words));
        }
        Piece::Thought(words) => {
            let _ = writeln!(
                out,
                "<details class=\"thought\"><summary>Thinking</summary><div class=\"prose\" dir=\"auto\">\n{}</div></details>",
                to_html(words)
            );
        }
        Piece::Call { name, brief, arguments } => {
            let summary = format!("→ <b>{}</b> <code>{}</code>", escape(name), escape(brief));
            put_extract(out, &summary, arguments);
        }
        Piece::Result { output, is_error } => {
            let mark = if *is_error { "<b class=\"bad\">✗ failed</b>" } else { "← result" };
            let lines = if output.lines == 1 { "1 line".to_owned() } else { format!("{} lines", output.lines) };
            put_extract(out, &format!("{mark}, {lines}"), output);
        }
        Piece::Picture { media_type, base64 } => {
            let _ = writeln!(out, "<p><img alt=\"picture\" src=\"data:{media_type};base64,{base64}\"></p>");
        }
        Piece::Note(words) => {
            let _ = writeln!(out, "<p class=\"note\" dir=\"auto\">{}</p>", escape(words));
        }
    }
}

fn put_extract(out: &mut String, summary: &str, extract: &Extract) {
    let _ = write!(out, "<details><summary>{summary}</summary>\n<pre dir=\"auto\">{}</pre>", escape(&extract.text));
    if let Some(left_out) = &extract.left_out {
        let _ = write!(out, "\n<p class=\"note\">{}</p>", escape(left_out));
    }
    out.push_str("</details>\n");
}
