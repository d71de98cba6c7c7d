//! The files that are made to hurt. Each has one thing that is wrong with it, in a size.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What a good file is called; it is the title of its thread.
pub(super) const GOOD: &str = "A good file";
/// How many items a good file has.
pub(super) const NEIGHBOURS: u64 = 20;
/// What lies before and behind the others, by their names.
const BESIDE: [&str; 2] = ["0-before", "~-behind"];

/// A kind of files that hurt.
pub(super) struct Case {
    /// What is wrong with them.
    pub(super) name: &'static str,
    /// How much of it there is in a short, a long and the longest run; the unit is the case's own.
    pub(super) sizes: (u64, u64, u64),
    /// Writes them into a folder.
    pub(super) lay: fn(&Path, u64) -> io::Result<()>,
    /// The largest item, in bytes.
    pub(super) largest: fn(u64) -> u64,
    /// So many items come of them at least, whatever their size.
    pub(super) items: u64,
    /// Whether four times as much may take but four times the work.
    pub(super) grows: bool,
    /// Whether a file may be refused as a whole.
    pub(super) may_be_refused: bool,
}

const PLAIN: Case = Case {
    name: "",
    sizes: (1, 1, 1),
    lay: |_, _| Ok(()),
    largest: |_| 0,
    items: 2,
    grows: false,
    may_be_refused: false,
};
const MANY: (u64, u64, u64) = (20_000, 200_000, 1_000_000);
const MEGABYTES: (u64, u64, u64) = (16, 64, 240);
const DEEP: (u64, u64, u64) = (100_000, 100_000, 1_000_000);
const MEBIBYTE: u64 = 1 << 20;

/// All of them.
pub(super) const CASES: &[Case] = &[
    Case { name: "strange text", lay: strange_text, ..PLAIN },
    Case { name: "strange numbers", lay: strange_numbers, ..PLAIN },
    Case { name: "MiB in one line", sizes: MEGABYTES, lay: long_line, largest: |size| size * MEBIBYTE, ..PLAIN },
    Case { name: "MiB in a line of no JSON", sizes: (16, 64, 1_024), lay: long_damage, largest: of_a_line, ..PLAIN },
    Case {
        name: "MiB in a line without an end",
        sizes: (16, 64, 1_024),
        lay: endless_line,
        largest: of_a_line,
        ..PLAIN
    },
    Case { name: "MiB in one element", sizes: MEGABYTES, lay: long_element, largest: |size| size * MEBIBYTE, ..PLAIN },
    Case { name: "lists in lists", sizes: DEEP, lay: deep_lists, largest: |size| size * 2, ..PLAIN },
    Case { name: "objects in objects", sizes: DEEP, lay: deep_objects, largest: |size| size * 6, ..PLAIN },
    Case { name: "lists in a document", sizes: DEEP, lay: deep_document, largest: |size| size * 2, ..PLAIN },
    Case { name: "empty objects", sizes: MANY, lay: empty_objects, grows: true, ..PLAIN },
    Case {
        name: "titles before a word",
        sizes: (150_000, 1_000_000, 10_000_000),
        lay: titles,
        items: 0,
        may_be_refused: true,
        ..PLAIN
    },
    Case { name: "lines of one byte", sizes: MANY, lay: one_byte_lines, grows: true, ..PLAIN },
    Case { name: "empty lines", sizes: MANY, lay: empty_lines, grows: true, ..PLAIN },
    Case { name: "cut lines", sizes: MANY, lay: cut_lines, grows: true, ..PLAIN },
    Case { name: "small deltas", sizes: MANY, lay: small_deltas, grows: true, ..PLAIN },
    Case { name: "elements", sizes: MANY, lay: many_elements, grows: true, ..PLAIN },
    Case { name: "cut elements", sizes: MANY, lay: cut_elements, grows: true, ..PLAIN },
    Case { name: "messages set anew", sizes: (2_000, 20_000, 50_000), lay: set_anew, grows: true, ..PLAIN },
    Case { name: "MiB of packed spaces", sizes: (64, 1_024, 4_096), lay: packed_spaces, largest: of_a_line, ..PLAIN },
    Case { name: "packed lines", sizes: MANY, lay: packed_lines, grows: true, ..PLAIN },
    Case { name: "packed rubbish", lay: packed_rubbish, may_be_refused: true, ..PLAIN },
    Case { name: "parents in a ring", sizes: MANY, lay: ring, grows: true, ..PLAIN },
    Case { name: "children of one parent", sizes: MANY, lay: one_parent, grows: true, ..PLAIN },
    Case { name: "back to the beginning in turns", sizes: MANY, lay: turns_back, grows: true, ..PLAIN },
    Case { name: "two talks in turns", sizes: MANY, lay: two_talks, grows: true, ..PLAIN },
    Case { name: "records of one id", sizes: MANY, lay: one_id, grows: true, ..PLAIN },
    Case { name: "calls without results", sizes: MANY, lay: open_calls, grows: true, ..PLAIN },
    Case {
        name: "sessions that fork from each other",
        sizes: (300, 3_000, 10_000),
        lay: ring_of_forks,
        grows: true,
        ..PLAIN
    },
    Case { name: "parents in a ring, pi", sizes: MANY, lay: ring_of_pi, grows: true, ..PLAIN },
    Case { name: "small files of one session", sizes: (500, 5_000, 20_000), lay: small_files, grows: true, ..PLAIN },
    Case {
        name: "sessions of a database",
        sizes: (500, 5_000, 20_000),
        lay: many_sessions,
        items: 100,
        grows: true,
        ..PLAIN
    },
    Case { name: "rows of one session", sizes: MANY, lay: many_rows, grows: true, ..PLAIN },
    Case { name: "a database that is none", lay: no_database, items: 3, may_be_refused: true, ..PLAIN },
];

/// The good files beside them.
pub(super) fn lay_neighbours(folder: &Path, lacking: bool) -> io::Result<()> {
    for name in BESIDE {
        let mut out = file(folder, &format!("{name}.jsonl"))?;
        let session = if name == BESIDE[0] { 1 } else { 2 };
        writeln!(out, r#"{{"type":"custom-title","customTitle":"{GOOD}","sessionId":"{}"}}"#, uuid(9, session))?;
        for number in 0..NEIGHBOURS - u64::from(lacking) {
            let parent = number.checked_sub(1).map(|before| uuid(session, before));
            claude(&mut out, (9, session), &uuid(session, number), parent.as_deref(), &format!("\"Line {number}\""))?;
        }
        out.flush()?;
    }
    Ok(())
}

/// A line of so many mebibytes is held up to the largest that an item may be; what comes behind that, in pieces.
fn of_a_line(mebibytes: u64) -> u64 {
    mebibytes.min(256) * MEBIBYTE
}

fn file(folder: &Path, name: &str) -> io::Result<BufWriter<File>> {
    let path = folder.join(name);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(BufWriter::new(File::create(path)?))
}

fn uuid(family: u64, number: u64) -> String {
    format!("{family:08x}-0000-4000-8000-{number:012x}")
}

/// A message of Claude Code; the content is JSON.
fn claude(out: &mut impl Write, session: (u64, u64), id: &str, parent: Option<&str>, content: &str) -> io::Result<()> {
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| format!("\"{parent}\""));
    let session = uuid(session.0, session.1);
    writeln!(
        out,
        r#"{{"parentUuid":{parent},"isSidechain":false,"type":"user","uuid":"{id}","sessionId":"{session}","timestamp":"2026-03-01T09:00:00.000Z","cwd":"/srv/shop","version":"2.1.0","message":{{"role":"user","content":{content}}}}}"#
    )
}

/// The first line of Codex.
fn codex_begin(out: &mut impl Write, session: &str, more: &str) -> io::Result<()> {
    writeln!(
        out,
        r#"{{"timestamp":"2026-03-01T09:00:00.000Z","type":"session_meta","payload":{{"id":"{session}","timestamp":"2026-03-01T09:00:00.000Z","cwd":"/srv/shop","originator":"codex_cli_rs","cli_version":"0.100.0"{more}}}}}"#
    )
}

fn codex(out: &mut impl Write, kind: &str, payload: &str) -> io::Result<()> {
    writeln!(out, r#"{{"timestamp":"2026-03-01T09:00:01.000Z","type":"{kind}","payload":{payload}}}"#)
}

fn codex_message(out: &mut impl Write, text: &str) -> io::Result<()> {
    let payload = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"#;
    codex(out, "response_item", &format!("{payload}{text}}}]}}"))
}

/// A file of Claude Code that a good line begins and a good line ends.
fn lines(folder: &Path, between: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = file(folder, "lines.jsonl")?;
    claude(&mut out, (3, 0), &uuid(3, 1), None, "\"It begins\"")?;
    between(&mut out)?;
    claude(&mut out, (3, 0), &uuid(3, 2), Some(&uuid(3, 1)), "\"It ends\"")?;
    out.flush()
}

fn rollout(folder: &Path, between: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = file(folder, "rollout.jsonl")?;
    codex_begin(&mut out, &uuid(4, 0), "")?;
    between(&mut out)?;
    codex_message(&mut out, "\"It ends\"")?;
    out.flush()
}

/// A document of Gemini CLI.
fn document(folder: &Path, between: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = file(folder, "session-2026-03-01T09-00-00000005.json")?;
    let session = uuid(5, 0);
    let times = r#""startTime":"2026-03-01T09:00:00.000Z","lastUpdated":"2026-03-01T09:00:00.000Z""#;
    write!(out, r#"{{"sessionId":"{session}","projectHash":"5d41402abc4b2a76",{times},"messages":["#)?;
    write!(out, "{},", gemini(0, "\"It begins\""))?;
    between(&mut out)?;
    write!(out, "{}]}}", gemini(u64::MAX, "\"It ends\""))?;
    out.flush()
}

fn gemini(number: u64, content: &str) -> String {
    format!(r#"{{"id":"m{number}","timestamp":"2026-03-01T09:00:00.000Z","type":"user","content":{content}}}"#)
}

fn fill(out: &mut impl Write, mebibytes: u64, byte: u8) -> io::Result<()> {
    let block = vec![byte; 1 << 20];
    (0..mebibytes).try_for_each(|_| out.write_all(&block))
}

fn strange_text(folder: &Path, _: u64) -> io::Result<()> {
    let texts: [&[u8]; 12] = [
        br"\ud83d",
        br"\udc00 alone",
        br"\ud83d\ud83d\udc00",
        br"\u0000",
        b"\\uffff \xef\xbf\xbf",
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xed\xa0\xbd",
        b"\xf4\x90\x80\x80",
        b"\xe2\x80\xa8\xe2\x80\xa9",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xae\x1b[2J",
    ];
    lines(folder, |out| {
        for (number, text) in (10_u64..).zip(texts) {
            let mut line = Vec::new();
            claude(&mut line, (3, 0), &uuid(3, number), Some(&uuid(3, 1)), "\"§\"")?;
            let at = line.windows(2).position(|two| two == "§".as_bytes()).unwrap_or(0);
            line.splice(at..at + 2, text.iter().copied());
            out.write_all(&line)?;
        }
        out.write_all(b"\xff\xfe\x00{\x00}\x00\n\xef\xbb\xbf{}\r\n\0\0\0\0\n\r\r\n")
    })?;
    rollout(folder, |out| {
        for text in texts {
            let text = String::from_utf8_lossy(text);
            let escaped = if text.starts_with('\\') { text.into_owned() } else { text.replace('\u{1b}', "\\u001b") };
            codex_message(out, &format!("\"{escaped}\""))?;
        }
        Ok(())
    })
}

fn strange_numbers(folder: &Path, _: u64) -> io::Result<()> {
    let numbers = [
        "1e400",
        "-1e400",
        "-0",
        "-0.0",
        "9223372036854775808",
        "18446744073709551616",
        "1e-400",
        "0.1e1",
        "1E+2",
        "123456789012345678901234567890.123456789012345678901234567890",
    ];
    rollout(folder, |out| {
        for number in numbers {
            let usage = format!(r#"{{"input_tokens":{number},"output_tokens":{number},"total_tokens":{number}}}"#);
            codex(out, "event_msg", &format!(r#"{{"type":"token_count","info":{{"total_token_usage":{usage}}}}}"#))?;
            let arguments = format!(r#""{{\"timeout\":{number}}}""#);
            codex(
                out,
                "response_item",
                &format!(r#"{{"type":"function_call","name":"wait","call_id":"c{number}","arguments":{arguments}}}"#),
            )?;
        }
        Ok(())
    })?;
    lines(folder, |out| {
        for (at, number) in (10_u64..).zip(numbers) {
            let call = format!(r#"[{{"type":"tool_use","id":"t{at}","name":"wait","input":{{"for":{number}}}}}]"#);
            claude(out, (3, 0), &uuid(3, at), Some(&uuid(3, 1)), &call)?;
            writeln!(out, r#"{{"type":"user","uuid":"{}","timestamp":{number},"parentUuid":{number}}}"#, uuid(6, at))?;
        }
        Ok(())
    })
}

fn long_line(folder: &Path, mebibytes: u64) -> io::Result<()> {
    lines(folder, |out| {
        let mut line = Vec::new();
        claude(&mut line, (3, 0), &uuid(3, 10), Some(&uuid(3, 1)), "\"§\"")?;
        let at = line.windows(2).position(|two| two == "§".as_bytes()).unwrap_or(0);
        out.write_all(line.get(..at).unwrap_or_default())?;
        fill(out, mebibytes, b'a')?;
        out.write_all(line.get(at + 2..).unwrap_or_default())
    })
}

fn long_damage(folder: &Path, mebibytes: u64) -> io::Result<()> {
    lines(folder, |out| {
        out.write_all(b"{\"type\":\"user\",\"message\":\"")?;
        fill(out, mebibytes, b'{')?;
        out.write_all(b"\n")
    })
}

fn endless_line(folder: &Path, mebibytes: u64) -> io::Result<()> {
    lines(folder, |_| Ok(()))?;
    let mut out = fs::OpenOptions::new().append(true).open(folder.join("lines.jsonl"))?;
    out.write_all(b"{\"type\":\"user\",\"message\":\"")?;
    fill(&mut out, mebibytes, b'"')
}

fn long_element(folder: &Path, mebibytes: u64) -> io::Result<()> {
    document(folder, |out| {
        out.write_all(br#"{"id":"m1","timestamp":"2026-03-01T09:00:00.000Z","type":"user","content":""#)?;
        fill(out, mebibytes, b'a')?;
        out.write_all(b"\"},")
    })
}

fn nested(depth: u64, open: &str, inside: &str, close: &str) -> String {
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

fn deep_lists(folder: &Path, depth: u64) -> io::Result<()> {
    lines(folder, |out| {
        claude(out, (3, 0), &uuid(3, 10), Some(&uuid(3, 1)), &nested(depth, "[", "1", "]"))?;
        writeln!(out, "{}", nested(depth, "[", "", ""))
    })
}

fn deep_objects(folder: &Path, depth: u64) -> io::Result<()> {
    rollout(folder, |out| {
        let inside = nested(depth, "{\"a\":", "1", "}");
        let escaped = inside.replace('"', "\\\"");
        codex(
            out,
            "response_item",
            &format!(r#"{{"type":"function_call","name":"deep","call_id":"c1","arguments":"{escaped}"}}"#),
        )?;
        codex(out, "response_item", &format!(r#"{{"type":"function_call_output","call_id":"c1","output":{inside}}}"#))?;
        codex(out, "event_msg", &nested(depth, "{\"a\":", "", ""))
    })
}

fn deep_document(folder: &Path, depth: u64) -> io::Result<()> {
    document(folder, |out| write!(out, "{},", gemini(1, &nested(depth, "[", "\"deep\"", "]"))))
}

fn empty_objects(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| (0..count).try_for_each(|_| out.write_all(b"{}\n")))
}

/// A file in which nothing is ever said.
fn titles(folder: &Path, count: u64) -> io::Result<()> {
    let mut out = file(folder, "lines.jsonl")?;
    let session = uuid(3, 0);
    (0..count).try_for_each(|number| {
        writeln!(out, r#"{{"type":"custom-title","customTitle":"Title {number}","sessionId":"{session}"}}"#)
    })?;
    out.flush()
}

fn one_byte_lines(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| (0..count).try_for_each(|_| out.write_all(b"1\n")))
}

fn empty_lines(folder: &Path, count: u64) -> io::Result<()> {
    rollout(folder, |out| (0..count).try_for_each(|_| out.write_all(b"\r\n")))
}

fn cut_lines(folder: &Path, count: u64) -> io::Result<()> {
    rollout(folder, |out| (0..count).try_for_each(|_| out.write_all(b"{\"timestamp\":\"2026-03\n")))
}

fn small_deltas(folder: &Path, count: u64) -> io::Result<()> {
    rollout(folder, |out| {
        (0..count).try_for_each(|number| {
            codex(out, "event_msg", &format!(r#"{{"type":"agent_message_delta","delta":" {number}"}}"#))
        })
    })
}

fn many_elements(folder: &Path, count: u64) -> io::Result<()> {
    document(folder, |out| (1..count).try_for_each(|number| write!(out, "{},", gemini(number, "\"hm\""))))
}

fn cut_elements(folder: &Path, count: u64) -> io::Result<()> {
    document(folder, |out| (1..count).try_for_each(|_| write!(out, "{{\"id\":,")))
}

fn set_anew(folder: &Path, count: u64) -> io::Result<()> {
    let mut out = file(folder, "session-2026-03-01T09-00-00000005.jsonl")?;
    let session = uuid(5, 0);
    writeln!(
        out,
        r#"{{"sessionId":"{session}","projectHash":"5d41402abc4b2a76","startTime":"2026-03-01T09:00:00.000Z","lastUpdated":"2026-03-01T09:00:00.000Z","kind":"main"}}"#
    )?;
    for number in 0..count {
        writeln!(out, "{}", gemini(number, "\"hm\""))?;
    }
    for number in 0..count {
        writeln!(out, "{}", gemini(count - 1 - number, "\"hm, once more\""))?;
        if number % 100 == 99 {
            writeln!(out, r#"{{"$rewindTo":"m{}"}}"#, number / 2)?;
        }
    }
    out.flush()
}

fn packed(folder: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = zstd::Encoder::new(file(folder, "rollout.jsonl.zst")?, 3)?;
    codex_begin(&mut out, &uuid(4, 0), "")?;
    write(&mut out)?;
    codex_message(&mut out, "\"It ends\"")?;
    out.finish()?.flush()
}

fn packed_spaces(folder: &Path, mebibytes: u64) -> io::Result<()> {
    packed(folder, |mut out| {
        fill(&mut out, mebibytes, b' ')?;
        out.write_all(b"\n")
    })
}

fn packed_lines(folder: &Path, count: u64) -> io::Result<()> {
    packed(folder, |mut out| (0..count).try_for_each(|_| codex_message(&mut out, "\"once more\"")))
}

fn packed_rubbish(folder: &Path, _: u64) -> io::Result<()> {
    packed(folder, |mut out| fill(&mut out, 1, b'x'))?;
    let whole = fs::read(folder.join("rollout.jsonl.zst"))?;
    fs::write(folder.join("cut.jsonl.zst"), whole.get(..whole.len() / 2).unwrap_or_default())?;
    fs::write(folder.join("not-packed.jsonl.zst"), b"{\"type\":\"session_meta\"}\n")?;
    // A frame that asks for a window of two gigabytes.
    fs::write(folder.join("window.jsonl.zst"), [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00])
}

fn ring(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| {
        (0..count).try_for_each(|number| {
            claude(out, (3, 0), &uuid(7, number), Some(&uuid(7, (number + 1) % count.max(1))), "\"hm\"")
        })?;
        claude(out, (3, 0), &uuid(7, count), Some(&uuid(7, count)), "\"its own parent\"")
    })
}

fn one_parent(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| {
        (0..count).try_for_each(|number| claude(out, (3, 0), &uuid(7, number), Some(&uuid(3, 1)), "\"hm\""))
    })
}

/// A long talk that goes on, and between its prompts others that follow one prompt of it after the other.
fn turns_back(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| {
        (0..count).try_for_each(|number| {
            let parent = match number {
                0 => uuid(3, 1),
                _ if number % 2 == 1 => uuid(7, number - 1),
                _ => uuid(7, number - 2),
            };
            let back = if number % 2 == 1 { uuid(7, number / 4 * 2) } else { parent };
            claude(out, (3, 0), &uuid(7, number), Some(&back), "\"hm\"")
        })
    })
}

fn two_talks(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| {
        (0..count).try_for_each(|number| {
            let parent = number.checked_sub(2).map_or_else(|| uuid(3, 1), |before| uuid(7, before));
            claude(out, (3, 0), &uuid(7, number), Some(&parent), "\"hm\"")
        })
    })
}

fn one_id(folder: &Path, count: u64) -> io::Result<()> {
    lines(folder, |out| (0..count).try_for_each(|_| claude(out, (3, 0), &uuid(3, 1), Some(&uuid(3, 1)), "\"hm\"")))
}

fn open_calls(folder: &Path, count: u64) -> io::Result<()> {
    rollout(folder, |out| {
        (0..count).try_for_each(|number| {
            let call = format!(r#"{{"type":"function_call","name":"go","call_id":"c{number}","arguments":"{{}}"}}"#);
            codex(out, "response_item", &call)
        })
    })
}

fn ring_of_forks(folder: &Path, count: u64) -> io::Result<()> {
    for number in 0..count {
        let base = uuid(8, (number + 1) % count.max(1));
        let more =
            format!(r#","forked_from_id":"{base}","history_base":{{"thread_id":"{base}","end_ordinal_exclusive":1}}"#);
        let mut out = file(folder, &format!("rollout-2026-03-01T09-00-00-{}.jsonl", uuid(8, number)))?;
        codex_begin(&mut out, &uuid(8, number), &more)?;
        codex_message(&mut out, "\"hm\"")?;
        out.flush()?;
    }
    Ok(())
}

fn ring_of_pi(folder: &Path, count: u64) -> io::Result<()> {
    let mut out = file(folder, "2026-03-01T09-00-00-000Z_00000009-0000-4000-8000-000000000000.jsonl")?;
    let session = uuid(9, 0);
    writeln!(
        out,
        r#"{{"type":"session","version":3,"id":"{session}","timestamp":"2026-03-01T09:00:00.000Z","cwd":"/srv/shop"}}"#
    )?;
    for number in 0..count {
        let parent = (number + 1) % count.max(1);
        writeln!(
            out,
            r#"{{"type":"message","id":"{number:08x}","parentId":"{parent:08x}","timestamp":"2026-03-01T09:00:00.000Z","message":{{"role":"user","content":"hm"}}}}"#
        )?;
    }
    out.flush()
}

fn small_files(folder: &Path, count: u64) -> io::Result<()> {
    let storage = folder.join("storage");
    let time = r#""time":{"created":1772355600000,"updated":1772355600000}"#;
    let mut out = file(&storage, "session/global/ses_1.json")?;
    write!(
        out,
        r#"{{"id":"ses_1","projectID":"global","directory":"/srv/shop","title":"Many","version":"1.1.0",{time}}}"#
    )?;
    out.flush()?;
    for number in 0..count {
        let id = format!("msg_{number:08}");
        let mut out = file(&storage, &format!("message/ses_1/{id}.json"))?;
        write!(out, r#"{{"id":"{id}","sessionID":"ses_1","role":"user","time":{{"created":1772355600000}}}}"#)?;
        out.flush()?;
        let mut out = file(&storage, &format!("part/{id}/prt_{number:08}.json"))?;
        write!(out, r#"{{"id":"prt_{number:08}","messageID":"{id}","sessionID":"ses_1","type":"text","text":"hm"}}"#)?;
        out.flush()?;
    }
    Ok(())
}

/// A database of goose.
fn database(folder: &Path, sessions: u64, rows: u64) -> io::Result<()> {
    let told = io::Error::other::<rusqlite::Error>;
    fs::create_dir_all(folder.join("goose"))?;
    let mut connection = rusqlite::Connection::open(folder.join("goose/sessions.db")).map_err(told)?;
    let made = "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, description TEXT, session_type TEXT, working_dir TEXT,
            created_at TIMESTAMP, updated_at TIMESTAMP, accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER,
            provider_name TEXT, model_config_json TEXT, parent_session_id TEXT, archived_at TIMESTAMP);
        CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT, role TEXT,
            content_json TEXT, created_timestamp INTEGER, metadata_json TEXT);
        CREATE INDEX by_session ON messages (session_id);";
    connection.execute_batch(made).map_err(told)?;
    let transaction = connection.transaction().map_err(told)?;
    for session in 0..sessions {
        let id = format!("20260301_{session}");
        let sql =
            "INSERT INTO sessions (id, name, session_type, working_dir, created_at, updated_at, parent_session_id)
            VALUES (?1, ?1, 'user', '/srv/shop', '2026-03-01 09:00:00', '2026-03-01 09:00:00', ?2)";
        let parent = format!("20260301_{}", (session + 1) % sessions.max(1));
        transaction.execute(sql, (&id, parent)).map_err(told)?;
        for row in 0..rows {
            let sql =
                "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json)
                VALUES (?1, ?2, 'user', '[{\"type\":\"text\",\"text\":\"hm\"}]', 1772355600, '{}')";
            transaction.execute(sql, (format!("m{row}"), &id)).map_err(told)?;
        }
    }
    transaction.commit().map_err(told)
}

fn many_sessions(folder: &Path, count: u64) -> io::Result<()> {
    database(folder, count, 2)
}

fn many_rows(folder: &Path, count: u64) -> io::Result<()> {
    database(folder, 1, count)
}

fn no_database(folder: &Path, _: u64) -> io::Result<()> {
    database(folder, 1, 3)?;
    let whole = fs::read(folder.join("goose/sessions.db"))?;
    fs::create_dir_all(folder.join("goose/cut"))?;
    fs::write(folder.join("goose/cut/sessions.db"), whole.get(..whole.len() / 2).unwrap_or_default())?;
    let mut hurt = whole;
    hurt.iter_mut().skip(100).step_by(7).for_each(|byte| *byte ^= 0x5a);
    fs::create_dir_all(folder.join("goose/hurt"))?;
    fs::write(folder.join("goose/hurt/sessions.db"), hurt)?;
    fs::create_dir_all(folder.join("goose/empty"))?;
    fs::write(folder.join("goose/empty/sessions.db"), b"SQLite format 3\0")
}
