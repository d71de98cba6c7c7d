//! An item and what was said around it.

use serde_json::{Map, Value, json};
use threadkeep::{Address, Thread};

use super::write_head;
use crate::around::Around;
use crate::conversation::Conversation;
use crate::errors::Failure;
use crate::marking::Words;
use crate::output::Output;
use crate::style::Ink;
use crate::views::Views;
use crate::{human, json};

/// What is shown of a thread around one of its items.
pub(in crate::commands) struct Neighbours<'a> {
    /// The thread.
    pub(in crate::commands) thread: &'a Thread,
    /// The items.
    pub(in crate::commands) near: &'a Around,
    /// The item in the middle; `None` in a thread without items.
    pub(in crate::commands) at: Option<Address>,
    /// What that one is called.
    pub(in crate::commands) address: &'a str,
    /// How items are read.
    pub(in crate::commands) views: &'a Views,
}

impl Neighbours<'_> {
    /// What programs get.
    pub(in crate::commands) fn document(&self) -> Map<String, Value> {
        let items = self.near.items.iter().map(|item| json::item(item, &self.views.read(item)));
        let fields = [
            ("thread", json::thread(self.thread)),
            ("at", json!(self.at)),
            ("items", items.collect()),
            ("more_before", self.near.more_before.into()),
            ("more_after", self.near.more_after.into()),
        ];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What people get; `words` stand out, and `whole` cuts nothing.
    pub(in crate::commands) fn write(
        &self,
        out: &mut Output,
        short_id: &str,
        words: Words,
        whole: bool,
    ) -> Result<(), Failure> {
        write_head(out, self.thread, short_id)?;
        out.line(out.paint(Ink::Dim, &format!("Around {}.", self.address)))?;
        let depth = self.at.map(|at| at.depth);
        let mut conversation = Conversation::new(whole).marking(words).standing_out(depth);
        for item in &self.near.items {
            conversation.write(out, item, &self.views.read(item))?;
        }
        let mut foot = Vec::new();
        if self.near.hidden > 0 {
            foot.push(format!("{} hidden between them.", human::counted(self.near.hidden, "event is", "events are")));
        }
        let more = match (self.near.more_before, self.near.more_after) {
            (true, true) => Some("before and behind"),
            (true, false) => Some("before"),
            (false, true) => Some("behind"),
            (false, false) => None,
        };
        foot.extend(more.map(|sides| format!("More {sides}: threadkeep show {} --around N", self.address)));
        if foot.is_empty() {
            return Ok(());
        }
        out.line(format!("\n{}", out.paint(Ink::Dim, &foot.join("\n"))))
    }
}
