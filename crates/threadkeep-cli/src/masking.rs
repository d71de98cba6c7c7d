//! The options by which secrets are masked: on the way in, and on the way out.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use threadkeep::{Item, ItemId, Masked, Rules, Thread};

use crate::errors::{Failure, Report};
use crate::style::Ink;
use crate::{human, output};

/// What is masked. Without any of these nothing is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Secrets")]
pub(crate) struct MaskingArgs {
    /// Mask what the rules that come with threadkeep find: keys, tokens and passwords of a few hundred kinds
    #[arg(long)]
    mask_secrets: bool,
    /// Mask what matches this regular expression; may be given several times
    #[arg(long = "mask", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Mask what the rules in this file find, in the format of gitleaks; may be given several times
    #[arg(long = "rules", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl MaskingArgs {
    /// The rules; `None` when nothing is to be masked.
    pub(crate) fn rules(&self) -> Result<Option<Rules>, Failure> {
        let mut all: Option<Rules> = None;
        let mut add = |more: Rules| {
            all = Some(match all.take() {
                Some(rules) => rules.and(&more),
                None => more,
            });
        };
        if self.mask_secrets {
            add(Rules::maintained()?);
        }
        for pattern in &self.patterns {
            add(Rules::pattern(pattern)?);
        }
        for file in &self.files {
            let failed = |error: std::io::Error| Report::usage(format!("--rules {}: {error}", file.display()));
            let text = std::fs::read_to_string(file).map_err(failed)?;
            let wrong = |error: threadkeep::Error| Report::usage(format!("--rules {}: {error}", file.display()));
            add(Rules::gitleaks(&text).map_err(wrong)?);
        }
        Ok(all)
    }

    /// The options again, as they would be given. Paths become absolute.
    pub(crate) fn options(&self) -> Vec<(String, Option<String>)> {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
        let secrets = self.mask_secrets.then(|| ("--mask-secrets".to_owned(), None));
        let patterns = self.patterns.iter().map(|pattern| (format!("--mask={pattern}"), None));
        let files = self.files.iter().map(|file| ("--rules".to_owned(), Some(absolute(file))));
        secrets.into_iter().chain(patterns).chain(files).collect()
    }
}

/// Masks what is shown; the store stays as it is.
#[derive(Debug)]
pub(crate) struct Veil {
    rules: Option<Rules>,
    masked: Cell<u64>,
    items: RefCell<HashSet<ItemId>>,
}

impl Veil {
    pub(crate) fn new(args: &MaskingArgs) -> Result<Self, Failure> {
        Ok(Self::of(args.rules()?))
    }

    /// Masks by these rules; without any nothing is masked.
    pub(crate) fn of(rules: Option<Rules>) -> Self {
        Self { rules, masked: Cell::new(0), items: RefCell::default() }
    }

    /// The bytes to show; `None` for the bytes that were given.
    pub(crate) fn bytes(&self, given: &[u8]) -> Option<Vec<u8>> {
        let masked = match self.rules.as_ref()?.mask(given) {
            Masked::NothingFound => return None,
            Masked::Masked { bytes, .. } => bytes,
            Masked::CannotMask => Rules::whole_marker().into(),
        };
        self.masked.set(self.masked.get() + 1);
        Some(masked)
    }

    /// Masks an item.
    pub(crate) fn item(&self, item: &mut Item) {
        let Some(rules) = &self.rules else { return };
        if let Some(text) = item.source_id.as_deref().and_then(|text| rules.mask_text(text)) {
            item.source_id = Some(text);
        }
        if let Some(bytes) = self.bytes(&item.content) {
            item.content = bytes;
            self.items.borrow_mut().insert(item.id);
        }
    }

    /// Says in an item's document that its content is not what is stored, if it is not.
    pub(crate) fn mark(&self, item: &Item, document: &mut Value) {
        if self.items.borrow().contains(&item.id) {
            mark(document);
        }
    }

    /// Masks what is said of a thread.
    pub(crate) fn thread(&self, thread: &mut Thread) {
        let Some(rules) = &self.rules else { return };
        let details = &mut thread.details;
        let texts = [
            &mut details.title,
            &mut details.preview,
            &mut details.cwd,
            &mut details.working_path,
            &mut details.git_branch,
            &mut details.git_origin,
            &mut details.persona,
            &mut details.end_reason,
        ];
        for text in texts {
            if let Some(masked) = text.as_deref().and_then(|text| rules.mask_text(text)) {
                *text = Some(masked);
            }
        }
        for value in details.extra.values_mut() {
            if let Some(masked) = rules.mask_text(&value.to_string()) {
                *value = serde_json::from_str(&masked).unwrap_or(Value::String(masked));
            }
        }
    }

    /// Whether anything was masked.
    pub(crate) fn has_masked(&self) -> bool {
        self.masked.get() > 0
    }

    /// How many parts were masked.
    pub(crate) fn count(&self) -> u64 {
        self.masked.get()
    }

    /// Tells people how much was masked.
    pub(crate) fn tell(&self, what: (&str, &str)) {
        if self.masked.get() > 0 {
            let count = human::counted(self.masked.get(), what.0, what.1);
            output::tell(Ink::Warn, "note", &format!("secrets in {count} are masked here, and still in the store"));
        }
    }
}

/// Says in a document that something is not what is stored.
pub(crate) fn mark(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.insert("masked".to_owned(), true.into());
    }
}
