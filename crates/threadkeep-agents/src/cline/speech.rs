//! Whose words stand in a message that the model is told as the person's.
//!
//! The agents put a person's words into marks, and their own between them: what is around the person, what a tool gave back, that a
//! task was taken up again. In files of tools that are written as XML, results are plain texts behind a line that names the tool.

use crate::conversation::Block;
use crate::lines::{Entry, Voice};

/// The marks around a person's words.
const MARKS: [&str; 5] = ["user_input", "task", "user_message", "feedback", "answer"];

/// What text of the agents' own begins with.
const OWN: [&str; 9] = [
    "<environment_details>",
    "<file_content",
    "<explicit_instructions",
    "<hook_context",
    "<system-reminder",
    "<workspace_diagnostics",
    "[ERROR]",
    "[NOTE]",
    "[[NOTE]",
];

/// What text of the agents' own begins with that a person's words may stand in, between marks.
const CARRYING: [&str; 9] = [
    "[TASK RESUMPTION]",
    "[ask_followup_question",
    "[attempt_completion",
    "[plan_mode_respond",
    "The user has provided feedback",
    "The user denied this operation",
    "The user provided",
    "You seem to be having trouble",
    "New ",
];

/// What a text is.
enum Speech<'a> {
    /// A person's words, and whether they are all of it but for the marks.
    Words(&'a str, bool),
    /// The agent's own.
    Own,
    /// It says which tool the following texts are from, or the whole of what it gave back.
    Result,
    /// It does not say.
    Plain,
}

/// A message in the person's name.
pub(super) fn heard(blocks: Vec<Block>) -> Entry {
    let mut words = None;
    let mut own_words = false;
    let mut is_result = blocks.iter().any(|block| matches!(block, Block::Result { .. }));
    let has_pairs = is_result;
    // Behind a line that names a tool stands what it gave back, whatever that looks like.
    let mut is_output_next = false;
    let mut told = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Block::Text(text) = &block else {
            own_words |= matches!(block, Block::Media { .. }) && !is_result;
            told.push(block);
            continue;
        };
        let is_output = std::mem::take(&mut is_output_next);
        match speech(text) {
            Speech::Words(..) | Speech::Plain if is_output && !carries(text) => told.push(block),
            Speech::Words(said, is_all) => {
                words = words.or_else(|| Some(said.to_owned()));
                told.push(if is_all { Block::Text(said.to_owned()) } else { block });
            }
            Speech::Result => {
                is_result = true;
                is_output_next = names_a_tool(text);
                told.push(block);
            }
            Speech::Plain => {
                own_words |= !is_result && !text.trim().is_empty();
                if own_words && !is_result {
                    words = words.or_else(|| Some(text.clone()));
                }
                told.push(block);
            }
            Speech::Own => told.push(block),
        }
    }
    let voice = match words.is_some() || own_words {
        true => Voice::Person,
        false if has_pairs => Voice::Tool,
        false => Voice::Injected,
    };
    Entry { prompt: words, ..Entry::said(voice, told) }
}

/// Whether a text says which tool the next one is from, and that is none by which a person answers.
fn names_a_tool(text: &str) -> bool {
    text.trim().ends_with("] Result:") && !carries(text)
}

fn carries(text: &str) -> bool {
    CARRYING.iter().any(|start| text.trim_start().starts_with(start))
}

/// The folder that the agent says that it works in.
pub(super) fn folder(blocks: &[Block]) -> Option<&str> {
    let around = |block: &&Block| matches!(block, Block::Text(text) if text.starts_with("<environment_details>"));
    let Block::Text(text) = blocks.iter().find(around)? else { return None };
    let named = ["# Current Working Directory (", "# Current Workspace Directory ("];
    let rest = named.iter().find_map(|start| text.split_once(start))?.1;
    let folder = rest.lines().next()?.split_once(") Files")?.0;
    is_absolute(folder).then_some(folder)
}

/// Whether it is a path from the root, of whatever system.
fn is_absolute(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.chars().nth(1) == Some(':')
}

fn speech(text: &str) -> Speech<'_> {
    let text = text.trim();
    if let Some(words) = MARKS.iter().find_map(|mark| marked(text, mark)) {
        return words;
    }
    if carries(text)
        && let Some(words) = MARKS.iter().find_map(|mark| within(text, mark))
    {
        return Speech::Words(words, false);
    }
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with('[') && first.contains("] Result:") {
        return Speech::Result;
    }
    let is_own = OWN.iter().chain(&["[TASK RESUMPTION]"]).any(|start| text.starts_with(start));
    if is_own { Speech::Own } else { Speech::Plain }
}

/// The words of a text that begins with a mark.
fn marked<'a>(text: &'a str, mark: &str) -> Option<Speech<'a>> {
    let rest = text.strip_prefix('<')?.strip_prefix(mark)?;
    let rest = match rest.strip_prefix('>') {
        Some(rest) => rest,
        None => rest.strip_prefix(' ')?.split_once('>')?.1,
    };
    let end = format!("</{mark}>");
    if let Some(words) = rest.strip_suffix(&end) {
        return Some(Speech::Words(words.trim(), true));
    }
    rest.split_once(&end).map(|(words, _)| Speech::Words(words.trim(), false))
}

/// The words between two marks.
fn within<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{mark}>"))?;
    rest.split_once(&format!("</{mark}>")).map(|(words, _)| words.trim())
}

#[cfg(test)]
mod tests {
    use super::heard;
    use crate::conversation::Block;
    use crate::lines::Voice;

    fn said(texts: &[&str]) -> (Voice, Option<String>) {
        let entry = heard(texts.iter().map(|text| Block::Text((*text).to_owned())).collect());
        (entry.voice, entry.prompt)
    }

    fn person(words: &str) -> (Voice, Option<String>) {
        (Voice::Person, Some(words.to_owned()))
    }

    #[test]
    fn a_persons_words_are_told_from_what_is_around_them() {
        let around = "<environment_details>\n# Current Time\n</environment_details>";
        assert_eq!(said(&["<task>\nFix it\n</task>", around]), person("Fix it"));
        assert_eq!(said(&["<user_input mode=\"act\">List <b>files</b></user_input>"]), person("List <b>files</b>"));
        assert_eq!(said(&["plain words", around]), person("plain words"));
        assert_eq!(
            said(&["<task>Look at 'a'</task>\n\n<file_content path=\"a\">x</file_content>"]),
            person("Look at 'a'")
        );
        assert_eq!(said(&[around]), (Voice::Injected, None));
        assert_eq!(said(&["[TASK RESUMPTION] It was interrupted.", around]), (Voice::Injected, None));
        let again = "New instructions for task continuation:\n<user_message>\ngo on\n</user_message>";
        assert_eq!(said(&["[TASK RESUMPTION] It was interrupted.", again]), person("go on"));
    }

    #[test]
    fn the_folder_is_what_the_agent_says_around_the_words() {
        let folder = |text: &str| super::folder(&[Block::Text(text.to_owned())]).map(str::to_owned);
        let around = "<environment_details>\n# Current Working Directory (/a (b)) Files\nx\n</environment_details>";
        assert_eq!(folder(around), Some("/a (b)".to_owned()));
        assert_eq!(folder("# Current Working Directory (/a) Files"), None);
        assert_eq!(folder("<environment_details>\n# Current Working Directory (a) Files"), None);
    }

    #[test]
    fn what_a_tool_gave_back_is_nobodys_prompt() {
        let output = ["[read_file for 'a.html'] Result:", "<task>a</task> b", "<environment_details>"];
        assert_eq!(said(&output), (Voice::Injected, None));
        assert_eq!(said(&["[read_file for 'a.html'] Result:", "<answer>42</answer>"]), (Voice::Injected, None));
        assert_eq!(
            said(&["[read_file for 'a.html'] Result:", "text with <answer>42</answer>"]),
            (Voice::Injected, None)
        );
        assert_eq!(said(&["[execute_command for 'ls'] Result:\na\nb"]), (Voice::Injected, None));
        let feedback = "The user has provided feedback on the results.\n<feedback>\nNo, blue.\n</feedback>";
        assert_eq!(said(&["[attempt_completion] Result:", feedback]), person("No, blue."));
        assert_eq!(
            said(&["[ask_followup_question for 'Which?'] Result:\n<answer>\nThe left\n</answer>"]),
            person("The left")
        );
    }

    #[test]
    fn the_marks_are_taken_off_where_they_are_all_there_is_around() {
        let entry = heard(vec![Block::Text("<user_input mode=\"plan\">\nWhy?\n</user_input>".to_owned())]);
        assert_eq!(entry.blocks, [Block::Text("Why?".to_owned())]);
    }
}
