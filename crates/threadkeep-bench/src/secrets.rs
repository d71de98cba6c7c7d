//! S1, S2: looking for secrets, by the bytes of what is looked through.

use std::path::Path;

use regex_automata::meta::Regex;
use threadkeep::{Masked, Rules};

use crate::measure::{OneCpu, Samples, ratio, take_turns};
use crate::plan::Plan;
use crate::report::{Report, Target, time};
use crate::text::Writer;
use crate::{Error, Result};

/// How much text a line holds.
const LINE_BYTES: usize = 2 << 10;
/// One kind of token: what a search for it alone costs.
const ONE_RULE: &str = "gh[oprsu]_[0-9A-Za-z]{36}";
const MEGABYTE: f64 = 1e6;

/// S1 and S2, over lines like those of an agent's file, of which none holds a secret.
///
/// # Errors
/// When something is found.
pub fn searching(plan: &Plan, _root: &Path, report: &mut Report) -> Result<()> {
    let _one_cpu = OneCpu::stay()?;
    let lines = lines(plan.sizes.searched);
    let bytes: usize = lines.iter().map(Vec::len).sum();
    let rules = Rules::maintained()?;
    let one = Regex::new(ONE_RULE)?;
    let nothing = |found: usize| {
        if found == 0 { Ok(()) } else { Err(Error::from(format!("{found} secrets in text that has none"))) }
    };
    let floor = || nothing(lines.iter().map(|line| one.find_iter(line).count()).sum());
    let find = || nothing(lines.iter().map(|line| rules.find(line).len()).sum());
    let mask = || nothing(lines.iter().filter(|line| rules.mask(line) != Masked::NothingFound).count());
    let count = rules.describe().count();
    let mut add = |id, what: String, target, ours: &Samples, floor: &Samples| {
        let speed = |samples: &Samples| bytes_as_f64(bytes) / samples.cpu() / MEGABYTE;
        let side = |samples: &Samples| format!("{} ({:.0} MB/s)", time(samples.cpu()), speed(samples));
        report.number(id, format!("{what}, in MB/s"), (side(ours), side(floor)), speed(ours), target);
        let figure = ratio(&ours.round_cpu, &floor.round_cpu);
        report.compare(
            id,
            "… by CPU time against one rule's pattern",
            (String::new(), String::new()),
            figure,
            Target::None,
        );
    };
    if plan.wants("S1") {
        let (ours, bare) = take_turns(plan.sizes.turns, 1, find, floor)?;
        let what = format!("finding secrets by {count} rules in {} MB of lines", bytes / 1_000_000);
        add("S1", what, Target::AtLeast(100.0), &ours, &bare);
    }
    if plan.wants("S2") {
        let (ours, bare) = take_turns(plan.sizes.turns, 1, mask, floor)?;
        let what = "masking the same, in every form that it has".to_owned();
        add("S2", what, Target::None, &ours, &bare);
    }
    Ok(())
}

/// Lines of JSON: half of them messages, half of them calls of tools whose arguments are JSON in a string.
fn lines(bytes: usize) -> Vec<Vec<u8>> {
    let mut writer = Writer::new(23);
    let (mut lines, mut size) = (Vec::new(), 0);
    while size < bytes {
        let text = escaped(&writer.text(LINE_BYTES));
        let id = writer.number();
        let line = match writer.below(2) {
            0 => format!(
                r#"{{"timestamp":"2026-03-14T09:26:53.000Z","type":"response_item","payload":{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}],"id":"{id:016x}"}}}}"#
            ),
            _ => format!(
                r#"{{"timestamp":"2026-03-14T09:26:54.000Z","type":"response_item","payload":{{"type":"function_call","name":"shell","call_id":"call_{id:016x}","arguments":"{}"}}}}"#,
                escaped(&format!(r#"{{"command":["bash","-lc","{text}"],"timeout_ms":{}}}"#, id % 100_000))
            ),
        };
        size += line.len();
        lines.push(line.into_bytes());
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn bytes_as_f64(bytes: usize) -> f64 {
    bytes as f64
}
