//! What was written in a thread, as a document shows it: Markdown is read, and nothing in it becomes active.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

use crate::markdown::fence;
use crate::text;

/// Longer texts are shown as they are.
const MOST_BYTES: usize = 1 << 20;
/// Blocks that stand deeper in each other are not set off any more.
const DEEPEST: usize = 24;
/// How often a text is made safe before it is shown as it is: taking one thing away can make another of what is left.
const ROUNDS: usize = 8;
const SENTINEL: &str = "threadkeepends";
/// Where a link may lead.
const SCHEMES: [&str; 3] = ["http", "https", "mailto"];

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The text with everything replaced that means something in HTML, or that could hide what stands there.
pub(super) fn escape(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + words.len() / 8);
    for c in text::clean(words).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Markdown as HTML of a few harmless elements. HTML in it is shown as it is written; pictures become links to them.
pub(super) fn to_html(words: &str) -> String {
    let words = text::clean(words);
    if words.len() > MOST_BYTES {
        return format!("<pre>{}</pre>\n", escape(&words));
    }
    let mut out = String::with_capacity(words.len() * 2);
    html::push_html(&mut out, Harmless::new(Parser::new_ext(&words, options())));
    out
}

/// Events without those that could become active.
struct Harmless<'a, I: Iterator<Item = Event<'a>>> {
    events: I,
    /// For each open link and picture, whether it is shown as a link.
    links: Vec<bool>,
    /// For each open block that can stand in itself, whether it is set off.
    blocks: Vec<bool>,
}

impl<'a, I: Iterator<Item = Event<'a>>> Harmless<'a, I> {
    fn new(events: I) -> Self {
        Self { events, links: Vec::new(), blocks: Vec::new() }
    }

    /// Opens a link, where it leads somewhere harmless and stands in no other.
    fn link(&mut self, kind: LinkType, dest: CowStr<'a>) -> Option<Event<'a>> {
        let is_link = leads_out(kind, &dest) && !self.links.contains(&true);
        self.links.push(is_link);
        let link_type = if kind == LinkType::Email { LinkType::Email } else { LinkType::Inline };
        is_link.then(|| Event::Start(Tag::Link { link_type, dest_url: dest, title: "".into(), id: "".into() }))
    }

    fn open(&mut self, tag: Tag<'a>) -> Option<Event<'a>> {
        let shown = self.blocks.len() < DEEPEST;
        self.blocks.push(shown);
        shown.then_some(Event::Start(tag))
    }

    /// What is shown of an event, if anything is.
    fn pass(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        Some(match event {
            Event::Html(code) | Event::InlineHtml(code) => Event::Text(code),
            Event::TaskListMarker(done) => Event::Text(if done { "☑ " } else { "☐ " }.into()),
            Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
            Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
            Event::Start(Tag::Link { link_type, dest_url, .. }) => return self.link(link_type, dest_url),
            Event::Start(Tag::Image { link_type, dest_url, .. }) => return self.link(link_type, dest_url),
            Event::End(TagEnd::Link | TagEnd::Image) => {
                return self.links.pop().filter(|is_link| *is_link).map(|_| Event::End(TagEnd::Link));
            }
            Event::Start(tag @ (Tag::BlockQuote(_) | Tag::List(_) | Tag::Item)) => {
                let plain = if let Tag::BlockQuote(_) = tag { Tag::BlockQuote(None) } else { tag };
                return self.open(plain);
            }
            Event::End(end @ (TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item)) => {
                let shown = self.blocks.pop().unwrap_or(false);
                return shown.then_some(Event::End(end));
            }
            Event::Start(Tag::Heading { level, .. }) => {
                let level = lower(level);
                Event::Start(Tag::Heading { level, id: None, classes: Vec::new(), attrs: Vec::new() })
            }
            Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language(&info).into())))
            }
            // An entity may stand for what would change how the page is read.
            Event::Text(words) => Event::Text(text::clean(&words).into_owned().into()),
            event => event,
        })
    }
}

impl<'a, I: Iterator<Item = Event<'a>>> Iterator for Harmless<'a, I> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let event = self.events.next()?;
            if let Some(event) = self.pass(event) {
                return Some(event);
            }
        }
    }
}

/// Headings of what was said stand below those of the document.
fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

fn language(info: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '#');
    info.chars().take_while(is_plain).take(20).collect()
}

/// Whether a link leads out of the document to where a reader may go.
fn leads_out(kind: LinkType, dest: &str) -> bool {
    if kind == LinkType::Email {
        return !dest.contains(':');
    }
    let scheme = dest.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str()))
}

/// Markdown as Markdown that stays within itself: HTML in it is shown as it is written, links lead out or are none, pictures
/// become links, and no fence or reference reaches into what comes after it.
pub(super) fn to_markdown(words: &str) -> String {
    let words = text::clean(words);
    // Behind a list an indented line is no code, and whatever stands in it means something.
    let mut safe = words.trim().to_owned();
    if safe.len() <= MOST_BYTES {
        for _ in 0..ROUNDS {
            let edits = edits(&safe);
            if !edits.is_empty() {
                safe = apply(&safe, edits);
                continue;
            }
            match open_fence(&safe) {
                Ends::Itself => return safe,
                Ends::With(fence) => safe = format!("{safe}\n{fence}"),
                Ends::Not => break,
            }
        }
    }
    fence(&words, "")
}

/// What has to be replaced, in order and apart.
fn edits(words: &str) -> Vec<(Range<usize>, &'static str)> {
    let parser = Parser::new_ext(words, options());
    let mut edits = Vec::new();
    let mut put = |at: usize, old: char, new: &'static str| {
        if words.get(at..).is_some_and(|rest| rest.starts_with(old)) {
            edits.push((at..at + old.len_utf8(), new));
        }
    };
    for (_, definition) in parser.reference_definitions().iter() {
        put(definition.span.start, '[', "\\[");
    }
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Html(_) | Event::InlineHtml(_) => {
                let code = words.get(range.clone()).unwrap_or_default();
                code.match_indices('<').for_each(|(at, _)| put(range.start + at, '<', "&lt;"));
            }
            Event::Start(Tag::Image { .. }) => put(range.start, '!', "\\!"),
            Event::Start(Tag::Link { link_type, dest_url, .. }) if !leads_out(link_type, &dest_url) => {
                put(range.start, '[', "\\[");
                put(range.start, '<', "&lt;");
            }
            // What can't be shown was cleaned away before: here it is an entity that stands for it.
            Event::Text(shown) if text::clean(&shown) != *shown => put(range.start, '&', "&amp;"),
            _ => {}
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    edits.dedup_by_key(|(range, _)| range.start);
    edits
}

fn apply(words: &str, edits: Vec<(Range<usize>, &'static str)>) -> String {
    let mut out = String::with_capacity(words.len() + edits.len() * 3);
    let mut at = 0;
    for (range, new) in edits {
        out.push_str(words.get(at..range.start).unwrap_or_default());
        out.push_str(new);
        at = range.end;
    }
    out.push_str(words.get(at..).unwrap_or_default());
    out
}

/// How a text ends.
enum Ends {
    /// What comes after it is not drawn into it.
    Itself,
    /// It does with this line after it.
    With(String),
    /// It can't be said.
    Not,
}

fn open_fence(words: &str) -> Ends {
    let probe = format!("{words}\n\n{SENTINEL}");
    let mut depth = 0_usize;
    let (mut block, mut last) = (None, None);
    for (event, range) in Parser::new_ext(&probe, options()).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    block = Some((tag, range));
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Text(words) if depth == 1 => last = Some(words.into_string()),
            _ => last = None,
        }
    }
    match block {
        Some((Tag::Paragraph, _)) if last.as_deref() == Some(SENTINEL) => Ends::Itself,
        Some((Tag::CodeBlock(CodeBlockKind::Fenced(_)), range)) => {
            let code = probe.get(range).unwrap_or_default().trim_start();
            let mark = code.chars().next().filter(|c| matches!(c, '`' | '~'));
            let fence: String = code.chars().take_while(|c| Some(*c) == mark).collect();
            if fence.is_empty() { Ends::Not } else { Ends::With(fence) }
        }
        _ => Ends::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::{escape, to_html, to_markdown};

    #[test]
    fn markdown_is_read() {
        let html = to_html(
            "# Plan\n\n1. **fix** `a<b`\n2. [docs](https://example.org/?a=1&b=2)\n\n```rust\nlet x = 1;\n```\n",
        );
        for part in [
            "<h3>Plan</h3>",
            "<strong>fix</strong>",
            "<code>a&lt;b</code>",
            "<a href=\"https://example.org/?a=1&amp;b=2\">docs</a>",
            "<pre><code class=\"language-rust\">let x = 1;\n</code></pre>",
        ] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
        assert!(to_html("| a | b |\n|---|---|\n| 1 | 2 |").contains("<td>2</td>"));
        assert!(to_html("- [x] done").contains("☑ done"));
    }

    #[test]
    fn links_lead_out_or_are_none() {
        for text in [
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,hi)",
            "[x](file:///etc/passwd)",
            "[x](src/main.rs)",
            "<javascript:alert(1)>",
            "[x]\n\n[x]: vbscript:x",
            "[x](java\tscript:x)",
            "[x](&#106;avascript:x)",
        ] {
            assert!(!to_html(text).contains("<a "), "{text}: {}", to_html(text));
        }
        assert_eq!(
            to_html("![a cat](https://example.org/c.png)"),
            "<p><a href=\"https://example.org/c.png\">a cat</a></p>\n"
        );
        assert_eq!(
            to_html("[![alt](https://a.example/i.png)](https://b.example/)"),
            "<p><a href=\"https://b.example/\">alt</a></p>\n"
        );
        assert_eq!(to_html("<ann@example.org>"), "<p><a href=\"mailto:ann@example.org\">ann@example.org</a></p>\n");
    }

    #[test]
    fn html_is_shown_as_it_is_written() {
        assert_eq!(to_html("a <b onclick=x>c</b>"), "<p>a &lt;b onclick=x&gt;c&lt;/b&gt;</p>\n");
        assert!(!to_html("<script>\nalert(1)\n</script>").contains("<script"));
        assert_eq!(escape("<a href='x\">&\0\u{202e}"), "&lt;a href=&#39;x&quot;&gt;&amp;␀\u{fffd}");
    }

    #[test]
    fn markdown_stays_within_itself() {
        for (text, safe) in [
            ("plain *words*", "plain *words*"),
            ("```sh\nls", "```sh\nls\n```"),
            ("~~~~\nls\n~~~", "~~~~\nls\n~~~\n~~~~"),
            ("a <b>c</b>", "a &lt;b>c&lt;/b>"),
            ("`<b>`", "`<b>`"),
            ("[x](javascript:y)", "\\[x](javascript:y)"),
            ("![x](https://a.example/p.png)", "\\![x](https://a.example/p.png)"),
            ("[x]\n\n[x]: https://a.example/", "[x]\n\n\\[x]: https://a.example/"),
            ("<!-- hidden", "&lt;!-- hidden"),
            ("    <b>code</b>", "&lt;b>code&lt;/b>"),
            ("> \t<b>", "> \t&lt;b>"),
        ] {
            assert_eq!(to_markdown(text), safe, "{text}");
        }
    }
}
