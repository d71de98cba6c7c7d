//! A hit in its context.

use threadkeep::{Item, SearchPage};

use super::{Addresses, hit_document, numbered};
use crate::around::around;
use crate::commands::App;
use crate::commands::show::neighbours::Neighbours;
use crate::errors::{Code, Outcome};
use crate::marking::Words;
use crate::views::{self, Views};

/// Shows a hit of the page and up to `count` items on either side, on its branch, with the words marked.
pub(super) fn open(
    page: &SearchPage,
    number: usize,
    count: usize,
    app: &mut App,
    addresses: &Addresses<'_>,
) -> Outcome {
    let (found, hit) = numbered(page, number)?;
    let threads = addresses.threads;
    let thread = threads.get(&found.id)?;
    // Where only the title fits, the end of the thread is where one goes on.
    let at = hit.item.as_ref().map(|item| item.address).or(thread.head);
    let views = Views::new();
    let everything = app.out.is_json();
    let wanted = |item: &Item| everything || views::is_conversation(item, &views.read(item));
    let near = at.map(|at| around(threads, &found.id, at, count, wanted)).transpose()?.unwrap_or_default();
    let words = Words::of([(hit.snippet.text.as_str(), hit.snippet.marks.as_slice())]);
    let address = addresses.hit(&found.id, hit);
    let neighbours = Neighbours { thread: &thread, near: &near, at, address: &address, views: &views };
    if app.out.is_json() {
        let mut document = neighbours.document();
        document.insert("hit".to_owned(), hit_document(found, hit));
        app.out.document(&document)?;
        return Ok(Code::Done);
    }
    neighbours.write(&mut app.out, &addresses.thread(&found.id), words, false)?;
    Ok(Code::Done)
}
