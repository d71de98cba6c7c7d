//! Whatever is in a thread, a page of it is a page of ours: read by a parser of HTML, as a browser reads it.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer};
use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag as Markup};
use threadkeep::{Timestamp, Usage};
use threadkeep_agents::conversation::MediaData;

use super::html::Html;
use super::markdown::Markdown;
use super::share::{Entry, Extract, Foot, Head, Piece, Sheet, Speaker, picture};

const ELEMENTS: [&str; 49] = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "h1",
    "dl",
    "div",
    "dt",
    "dd",
    "main",
    "article",
    "span",
    "a",
    "time",
    "p",
    "details",
    "summary",
    "b",
    "code",
    "pre",
    "img",
    "footer",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "blockquote",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "em",
    "strong",
    "del",
    "br",
    "hr",
    "s",
    "sup",
    "i",
    "u",
    "q",
];
const ATTRIBUTES: [&str; 16] = [
    "lang",
    "charset",
    "name",
    "content",
    "http-equiv",
    "dir",
    "class",
    "id",
    "href",
    "datetime",
    "alt",
    "src",
    "start",
    "align",
    "style",
    "colspan",
];

#[derive(Default)]
struct Tags(RefCell<Vec<Tag>>);

impl TokenSink for Tags {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) => {
                // What a tree builder would say of these.
                let raw = match (&*tag.name, tag.kind) {
                    ("style", TagKind::StartTag) => TokenSinkResult::RawData(RawKind::Rawtext),
                    ("title", TagKind::StartTag) => TokenSinkResult::RawData(RawKind::Rcdata),
                    _ => TokenSinkResult::Continue,
                };
                self.0.borrow_mut().push(tag);
                raw
            }
            Token::CommentToken(comment) => panic!("a comment: {comment}"),
            Token::NullCharacterToken => panic!("a NUL"),
            _ => TokenSinkResult::Continue,
        }
    }
}

fn tags(page: &str) -> Vec<Tag> {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(page));
    let tokenizer = Tokenizer::new(Tags::default(), Default::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.take()
}

/// A page that says this wherever something can be said.
fn entries(words: &str) -> Vec<Entry> {
    let pieces = vec![
        Piece::Prose(words.to_owned()),
        Piece::Prose(words.to_owned()),
        Piece::Thought(words.to_owned()),
        Piece::Call { name: words.to_owned(), brief: words.to_owned(), arguments: Extract::of(words) },
        Piece::Result { output: Extract::of(words), is_error: true },
        picture(words, &MediaData::Base64(words.to_owned()), &mut 1000),
        picture("image/png", &MediaData::Base64(words.to_owned()), &mut 1000),
        Piece::Note(words.to_owned()),
    ];
    let speakers =
        [Speaker::User, Speaker::Assistant, Speaker::System, Speaker::Tool, Speaker::Summary, Speaker::Nobody];
    let usage = Some(Usage { input: 1, cached: 1, output: 1, reasoning: 1 });
    let entry = |(depth, speaker)| Entry {
        depth,
        speaker,
        time: Timestamp(0),
        pieces: pieces.clone(),
        usage,
        notes: vec![words.to_owned()],
    };
    (0..).zip(speakers).map(entry).collect()
}

fn document(sheet: &mut dyn Sheet, words: &str) -> String {
    let mut out = sheet.head(&Head { title: words.to_owned(), facts: vec![("Agent", words.to_owned())] });
    out.extend(entries(words).iter().map(|entry| sheet.entry(entry)));
    out.push_str(&sheet.foot(&Foot { sentences: vec![words.to_owned()] }));
    out
}

/// Checks that a page has harmless elements alone, each closed, and as many of ours as there must be.
fn check_page(words: &str) {
    let page = document(&mut Html, words);
    let mut open: Vec<String> = Vec::new();
    let (mut articles, mut styles) = (0, 0);
    for tag in tags(&page) {
        let name = tag.name.to_string();
        assert!(ELEMENTS.contains(&name.as_str()), "<{name}> of {words:?}");
        let is_void = ["meta", "img", "br", "hr"].contains(&name.as_str());
        match tag.kind {
            TagKind::EndTag => assert_eq!(open.pop().as_deref(), Some(name.as_str()), "{words:?}"),
            TagKind::StartTag if !is_void => open.push(name.clone()),
            TagKind::StartTag => {}
        }
        articles += usize::from(tag.kind == TagKind::StartTag && name == "article");
        styles += usize::from(tag.kind == TagKind::StartTag && name == "style");
        for attribute in &tag.attrs {
            let (key, value) = (attribute.name.local.to_string(), attribute.value.to_string());
            assert!(ATTRIBUTES.contains(&key.as_str()), "{key}={value} of {words:?}");
            let fits = match key.as_str() {
                "href" => ["https:", "http:", "mailto:", "#i"]
                    .iter()
                    .any(|start| value.to_ascii_lowercase().starts_with(start)),
                "src" => value.starts_with("data:image/"),
                "style" => value.starts_with("text-align: "),
                _ => true,
            };
            assert!(fits, "{key}={value} of {words:?}");
        }
    }
    assert_eq!((open.len(), articles, styles), (0, 6, 1), "{words:?}");
    assert!(!page.contains(['\0', '\u{202e}', '\u{2066}', '\u{1b}']), "{words:?}");
}

/// Checks that a document has our HTML alone, and links that lead out.
fn check_markdown(words: &str) {
    let page = document(&mut Markdown, words);
    let (mut headings, mut details) = (0, 0);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut code = String::new();
    for event in Parser::new_ext(&page, options) {
        match event {
            Event::Html(html) | Event::InlineHtml(html) => code.push_str(&html),
            Event::Start(Markup::Image { dest_url, .. }) => panic!("a picture from {dest_url} of {words:?}"),
            Event::Start(Markup::Link { dest_url, .. }) => {
                let lower = dest_url.to_ascii_lowercase();
                let leads_out = ["https:", "http:", "mailto:"].iter().any(|start| lower.starts_with(start));
                assert!(leads_out || !lower.contains(':'), "{dest_url} of {words:?}");
            }
            Event::Start(Markup::Heading { .. }) => headings += 1,
            _ => {}
        }
    }
    for tag in tags(&code) {
        assert!(["a", "details", "summary", "b", "code"].contains(&&*tag.name), "<{}> of {words:?}", tag.name);
        details += usize::from(tag.kind == TagKind::StartTag && &*tag.name == "details");
        let ours = |key: &str, value: &str| key == "id" && value.starts_with('i');
        assert!(tag.attrs.iter().all(|it| ours(&it.name.local, &it.value)), "{:?} of {words:?}", tag.attrs);
    }
    // A heading for the title and for everybody who speaks but the tool, and what is folded: nothing was swallowed.
    assert!(headings >= 6, "{headings} headings of {words:?}");
    assert_eq!(details, 20, "{words:?}");
}

const HOSTILE: &[&str] = &[
    "",
    "<script>alert(1)</script>",
    "</pre></details></article></main><script>alert(1)</script>",
    "</title></style><svg onload=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1)) ![x](javascript:alert(1)) <javascript:alert(1)>",
    "![x](https://tracker.example/p.png)",
    "[x](<javascript:alert(1)>) [y](data:text/html;base64,xx) [z](vbscript:x)",
    "[x]: javascript:alert(1)\n\n[x]\n\n[@0]: https://evil.example/",
    "\" onmouseover=\"alert(1)",
    "' onmouseover='alert(1)",
    "[x](https://a.example/\"onmouseover=\"alert(1))",
    "```\" onmouseover=\"x\nhi",
    "````\n```\n</details>",
    "~~~\nnever closed",
    "- a\n  ```\n  in a list",
    "> quoted\n```",
    "<!-- a comment that never ends",
    "<![CDATA[ x",
    "<?php x",
    "<!DOCTYPE html>",
    "&lt;script&gt; &#60;script&#62; &#x3c;script>",
    "\u{202e}gpj.exe\u{2066}\0\x1b[31m\u{200b}",
    "<div>\n\n[x](javascript:alert(1))\n\n</div>",
    "<pre>\n[x](javascript:alert(1))\n</pre>",
    "| a | <b> |\n|:--|--:|\n| [x](javascript:1) | `</td>` |",
    "# one\n===\ntwo\n---\n<details open ontoggle=alert(1)>",
    "<details><summary>x</summary>",
    "</summary></details>",
    "&#106;avascript: [x](&#106;avascript:alert(1)) [x](java&#10;script:alert(1))",
    "    indented\n\n\t<b>code</b>",
    "\\<b> \\[x](javascript:y) \\`",
    "a\rb\r\nc\u{2028}d\u{2029}e\u{85}f",
    "[^1]\n\n[^1]: note <b>",
    "    <script>\n- a",
    "\t|<script>",
    "- a\n\n      <script>",
];

#[test]
fn nothing_of_a_thread_becomes_active() {
    for words in HOSTILE {
        check_page(words);
        check_markdown(words);
    }
    let deep = "> ".repeat(5_000) + "deep";
    check_page(&deep);
    check_page(&"[".repeat(5_000));
    check_page(&"- ".repeat(3_000));
}

/// Pieces of what is dangerous, in any order.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "<",
        ">",
        "/",
        "\"",
        "'",
        "`",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "[",
        "]",
        "(",
        ")",
        "!",
        "![",
        "](",
        ":",
        "javascript:",
        "https://a.example",
        "<b>",
        "</details>",
        "<script>",
        "<!--",
        "-->",
        "&",
        "&lt;",
        "#",
        "- ",
        "> ",
        "1. ",
        "    ",
        "\t",
        "|",
        "|-|",
        "x",
        " ",
        "\\",
        "*",
        "_",
        "[x]: ",
        "\0",
        "\u{202e}",
        "é",
        "=",
        "---",
        "<a href=",
        "<?",
        "]]>",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_anything_are_pages_of_ours(words in prop_oneof![hostile(), any::<String>()]) {
        check_page(&words);
    }

    #[test]
    fn documents_of_anything_stay_within_themselves(words in prop_oneof![hostile(), any::<String>()]) {
        check_markdown(&words);
    }
}

#[test]
fn pictures_are_shown_within_a_bound_and_only_when_they_are_ones() {
    let mut left = 5;
    let png = MediaData::Base64("iVBORw==".to_owned());
    assert!(matches!(picture("image/png", &png, &mut left), Piece::Picture { media_type: "image/png", .. }));
    assert_eq!(left, 1);
    assert!(matches!(picture("image/png", &png, &mut left), Piece::Note(_)), "there is no room left");
    let mut left = 100;
    assert!(matches!(picture("image/svg+xml", &png, &mut left), Piece::Note(_)));
    assert!(matches!(picture("image/png", &MediaData::Base64("\" x=".to_owned()), &mut left), Piece::Note(_)));
    assert!(matches!(picture("image/png", &MediaData::Reference("https://x".to_owned()), &mut left), Piece::Note(_)));
}

#[test]
fn what_is_long_is_cut_and_says_so() {
    let whole = Extract::of("one\ntwo\n");
    assert_eq!((whole.text.as_str(), whole.left_out, whole.lines), ("one\ntwo", None, 2));
    let many = "line\n".repeat(1_000);
    let cut = Extract::of(&many);
    assert_eq!(cut.text.lines().count(), 300);
    assert_eq!(cut.left_out.as_deref(), Some("… 700 more lines (3.4 KiB) left out"));
    let long = "é".repeat(20_000);
    let cut = Extract::of(&long);
    assert_eq!(cut.text.len(), 16 << 10);
    assert_eq!(cut.left_out.as_deref(), Some("… 1 more line (23.0 KiB) left out"));
}
