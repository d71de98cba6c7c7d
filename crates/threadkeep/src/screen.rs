//! Screening: what the embedding program has to say on what is about to be written, before anything is made of it.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::item::{FORMAT, NewItem};
use crate::secrets::{Masked, Rules};
use crate::thread::{Details, ThreadPatch};
use crate::view::{Part, View};

/// What is about to be written.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// An item that is appended.
    Item(&'a NewItem),
    /// A part of a file that is imported: a record, or what stands between two of them.
    Imported {
        /// The file.
        path: &'a str,
        /// The bytes of the part.
        bytes: &'a [u8],
    },
    /// A text that is stored beside items: of a thread's metadata, a label, the id that an item had elsewhere.
    Text {
        /// What it is.
        field: &'static str,
        /// What it says.
        text: &'a str,
    },
}

impl<'a> Incoming<'a> {
    /// What would be stored.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Item(item) => &item.content,
            Self::Imported { bytes, .. } => bytes,
            Self::Text { text, .. } => text.as_bytes(),
        }
    }
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screened {
    /// It is stored as it is.
    Keep,
    /// This is stored in its place.
    Replace(Vec<u8>),
    /// It is not stored, and who wants to write it is told why.
    Refuse(String),
}

type Function = Arc<dyn Fn(&Incoming<'_>) -> Screened + Send + Sync>;

/// The functions that a store was opened with, in their order.
#[derive(Clone, Default)]
pub(crate) struct Screen(Vec<Function>);

impl Screen {
    pub(crate) fn add(&mut self, function: impl Fn(&Incoming<'_>) -> Screened + Send + Sync + 'static) {
        self.0.push(Arc::new(function));
    }

    /// Whether nothing is screened.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Screens an item; says whether its content was replaced.
    pub(crate) fn item(&self, item: &mut NewItem) -> Result<bool> {
        let mut replaced = false;
        for function in &self.0 {
            replaced |= apply(function(&Incoming::Item(item)), "content", |bytes| {
                item.content = bytes;
                Ok(())
            })?;
        }
        self.text("source_id", &mut item.source_id)?;
        Ok(replaced)
    }

    /// Screens a part of an imported file; gives what is stored in its place, if anything is.
    pub(crate) fn imported(&self, path: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut replaced = None;
        for function in &self.0 {
            let incoming = Incoming::Imported { path, bytes: replaced.as_deref().unwrap_or(bytes) };
            let screened = function(&incoming);
            apply(screened, "content", |bytes| {
                replaced = Some(bytes);
                Ok(())
            })?;
        }
        Ok(replaced)
    }

    /// Screens a text.
    pub(crate) fn text(&self, field: &'static str, text: &mut Option<String>) -> Result<()> {
        let Some(text) = text else { return Ok(()) };
        for function in &self.0 {
            let screened = function(&Incoming::Text { field, text });
            apply(screened, field, |bytes| {
                let unfit = |_| Error::invalid(field, "what was to be stored in its place is no UTF-8");
                *text = String::from_utf8(bytes).map_err(unfit)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Screens a text that is JSON, and stays so.
    pub(crate) fn json(&self, field: &'static str, text: &mut Option<String>) -> Result<()> {
        let given = text.clone();
        self.text(field, text)?;
        if let Some(replaced) = text.as_mut().filter(|text| given.as_ref() != Some(*text))
            && serde_json::from_str::<serde::de::IgnoredAny>(replaced).is_err()
        {
            *replaced = serde_json::Value::String(std::mem::take(replaced)).to_string();
        }
        Ok(())
    }

    /// Screens a text that is a JSON array, and stays one.
    pub(crate) fn list(&self, field: &'static str, text: &mut Option<String>) -> Result<()> {
        let given = text.clone();
        self.json(field, text)?;
        if let Some(replaced) = text.as_mut().filter(|text| given.as_ref() != Some(*text))
            && !replaced.trim_ascii_start().starts_with('[')
        {
            *replaced = format!("[{replaced}]");
        }
        Ok(())
    }

    /// Screens what a new thread says of itself.
    pub(crate) fn details(&self, details: &mut Details) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        details.texts_mut().into_iter().try_for_each(|(field, text)| self.text(field, text))?;
        details.extra.values_mut().try_for_each(|value| self.value(value))
    }

    /// Screens what a patch says of a thread.
    pub(crate) fn patch(&self, patch: &mut ThreadPatch) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        patch.texts_mut().into_iter().try_for_each(|(field, change)| change.with_set(|text| self.text(field, text)))?;
        patch
            .extra
            .values_mut()
            .try_for_each(|change| change.with_set(|value| value.as_mut().map_or(Ok(()), |value| self.value(value))))
    }

    fn value(&self, value: &mut serde_json::Value) -> Result<()> {
        let given = value.to_string();
        let mut text = Some(given.clone());
        self.text("extra", &mut text)?;
        if let Some(text) = text.filter(|text| *text != given) {
            *value = serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
        }
        Ok(())
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Screen({} functions)", self.0.len())
    }
}

/// Does what was decided; says whether something was replaced.
fn apply(screened: Screened, field: &'static str, replace: impl FnOnce(Vec<u8>) -> Result<()>) -> Result<bool> {
    match screened {
        Screened::Keep => Ok(false),
        Screened::Replace(bytes) => replace(bytes).map(|()| true),
        Screened::Refuse(reason) => Err(Error::Invalid { field, reason }),
    }
}

/// Masks what the rules find.
pub(crate) fn masking(rules: Rules) -> impl Fn(&Incoming<'_>) -> Screened + Send + Sync + 'static {
    move |incoming| match rules.mask(incoming.bytes()) {
        Masked::NothingFound => Screened::Keep,
        Masked::Masked { bytes, .. } => Screened::Replace(bytes),
        Masked::CannotMask => Screened::Replace(stand_in(incoming)),
    }
}

/// What is stored in the place of content that can't be masked in part.
fn stand_in(incoming: &Incoming<'_>) -> Vec<u8> {
    let marker = Rules::whole_marker();
    match incoming {
        Incoming::Item(item) if item.format == FORMAT => {
            let note = Part::Note { text: marker.to_owned() };
            let view = View { role: item.role.clone(), parts: vec![note], ..View::default() };
            serde_json::to_vec(&view).unwrap_or_default()
        }
        // A record is an object, whatever its agent; so a file of such lines stays one.
        Incoming::Item(_) | Incoming::Imported { .. } if incoming.bytes().trim_ascii_start().starts_with(b"{") => {
            serde_json::json!({ "type": marker }).to_string().into_bytes()
        }
        _ => marker.into(),
    }
}
