//! Listing threads: pages by key, in a total order, whose cost does not grow with how far one has paged.

use std::ops::ControlFlow;

use crate::cursor::Cursor;
use crate::db::{Statement, Tx, Value, statements};
use crate::error::{Error, Result};
use crate::thread::{Lineage, ListQuery, Page, SortKey, Thread};
use crate::threads::{Scope, read_listed, thread_columns};

const MAX_PAGE: usize = 1_000;

// One statement per order, direction and scope, so that each has its index. The other filters are checked on the rows.
macro_rules! list {
    ($scope:literal, $sort:literal, $cmp:literal, $dir:literal) => {
        concat!(
            thread_columns!(),
            "WHERE ",
            $scope,
            " AND (t.",
            $sort,
            ", t.id) ",
            $cmp,
            " (?2, ?3) AND t.shelf BETWEEN ?4 AND ?5
              AND (CAST(?6 AS TEXT) IS NULL OR t.agent = ?6) AND (CAST(?7 AS TEXT) IS NULL OR t.provider = ?7)
              AND (CAST(?8 AS TEXT) IS NULL OR t.cwd = ?8) AND (CAST(?9 AS TEXT) IS NULL OR t.source = ?9)
              AND (CAST(?10 AS TEXT) IS NULL OR t.parent = ?10) AND (CAST(?11 AS TEXT) IS NULL OR t.forked_from = ?11)
              AND t.branches >= ?12
              ORDER BY t.",
            $sort,
            " ",
            $dir,
            ", t.id ",
            $dir,
            " LIMIT ?13"
        )
    };
}

statements! {
    ACTIVITY_DOWN = list!("CAST(?1 AS BYTEA) IS NULL", "activity", "<", "DESC");
    ACTIVITY_UP = list!("CAST(?1 AS BYTEA) IS NULL", "activity", ">", "ASC");
    UPDATED_DOWN = list!("CAST(?1 AS BYTEA) IS NULL", "updated", "<", "DESC");
    UPDATED_UP = list!("CAST(?1 AS BYTEA) IS NULL", "updated", ">", "ASC");
    CREATED_DOWN = list!("CAST(?1 AS BYTEA) IS NULL", "created_at", "<", "DESC");
    CREATED_UP = list!("CAST(?1 AS BYTEA) IS NULL", "created_at", ">", "ASC");
    ACTIVITY_DOWN_IN = list!("t.workspace = ?1", "activity", "<", "DESC");
    ACTIVITY_UP_IN = list!("t.workspace = ?1", "activity", ">", "ASC");
    UPDATED_DOWN_IN = list!("t.workspace = ?1", "updated", "<", "DESC");
    UPDATED_UP_IN = list!("t.workspace = ?1", "updated", ">", "ASC");
    CREATED_DOWN_IN = list!("t.workspace = ?1", "created_at", "<", "DESC");
    CREATED_UP_IN = list!("t.workspace = ?1", "created_at", ">", "ASC");
}

/// Reads a page. A thread whose descriptive fields are damaged stays listed, and says so.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &ListQuery) -> Result<Page<Thread>> {
    // A page may have another size than the one before it.
    let sizeless = ListQuery { limit: 0, cursor: None, ..query.clone() };
    let tag = format!("threads {scope:?} {}", serde_json::to_string(&sizeless).unwrap_or_default());
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None if query.ascending => Cursor { value: i64::MIN, id: String::new() },
        // `~` comes after every character that an id may hold.
        None => Cursor { value: i64::MAX, id: "~".to_owned() },
    };
    let limit = query.limit.min(MAX_PAGE);
    let (low, high) = query.shelves.bounds();
    let (children, forks) = match &query.lineage {
        None => (None, None),
        Some(Lineage::ChildrenOf(id)) => (Some(id.as_str()), None),
        Some(Lineage::ForksOf(id)) => (None, Some(id.as_str())),
    };
    let needle = query.text.as_ref().map(|text| text.to_lowercase());
    // Where the rows are looked through here, more of them are asked for at a time.
    let chunk = if needle.is_some() { MAX_PAGE } else { limit } + 1;
    let mut entries: Vec<Thread> = Vec::new();
    let mut more = false;
    let mut from = Some((start.value, start.id)).filter(|_| limit > 0);
    while let Some((value, id)) = from.take() {
        let args: [Value<'_>; 13] = [
            scope.arg(),
            value.into(),
            id.as_str().into(),
            low.into(),
            high.into(),
            query.agent.as_deref().into(),
            query.provider.as_deref().into(),
            query.cwd.as_deref().into(),
            query.source.as_deref().into(),
            children.into(),
            forks.into(),
            if query.branched { 2 } else { 0 }.into(),
            i64::try_from(chunk).unwrap_or(i64::MAX).into(),
        ];
        let mut rows = 0;
        tx.query(statement(scope, query), &args, &mut |row| {
            let thread = read_listed(row)?;
            rows += 1;
            if rows == chunk {
                from = Some((sort_value(&thread, query.sort), thread.id.to_string()));
            }
            if needle.as_ref().is_some_and(|needle| !mentions(&thread, needle)) {
                return Ok(ControlFlow::Continue(()));
            }
            more = entries.len() == limit;
            if more {
                return Ok(ControlFlow::Break(()));
            }
            entries.push(thread);
            Ok(ControlFlow::Continue(()))
        })?;
        from = from.filter(|_| !more);
    }
    let last = entries.last().filter(|_| more);
    let next_cursor =
        last.map(|last| Cursor { value: sort_value(last, query.sort), id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// Refuses text that no engine can compare.
pub(crate) fn check(query: &ListQuery) -> Result<()> {
    let texts = [&query.agent, &query.provider, &query.cwd, &query.source, &query.text];
    if texts.into_iter().flatten().any(|text| text.contains('\0')) {
        return Err(Error::invalid("filter", "it contains a NUL character"));
    }
    Ok(())
}

fn statement(scope: Scope, query: &ListQuery) -> Statement {
    match (scope, query.sort, query.ascending) {
        (Scope::All, SortKey::Activity, false) => ACTIVITY_DOWN,
        (Scope::All, SortKey::Activity, true) => ACTIVITY_UP,
        (Scope::All, SortKey::Updated, false) => UPDATED_DOWN,
        (Scope::All, SortKey::Updated, true) => UPDATED_UP,
        (Scope::All, SortKey::Created, false) => CREATED_DOWN,
        (Scope::All, SortKey::Created, true) => CREATED_UP,
        (Scope::Workspace(_), SortKey::Activity, false) => ACTIVITY_DOWN_IN,
        (Scope::Workspace(_), SortKey::Activity, true) => ACTIVITY_UP_IN,
        (Scope::Workspace(_), SortKey::Updated, false) => UPDATED_DOWN_IN,
        (Scope::Workspace(_), SortKey::Updated, true) => UPDATED_UP_IN,
        (Scope::Workspace(_), SortKey::Created, false) => CREATED_DOWN_IN,
        (Scope::Workspace(_), SortKey::Created, true) => CREATED_UP_IN,
    }
}

fn sort_value(thread: &Thread, sort: SortKey) -> i64 {
    match sort {
        SortKey::Activity => thread.activity,
        SortKey::Updated => thread.updated,
        SortKey::Created => thread.created_at.0,
    }
}

fn mentions(thread: &Thread, needle: &str) -> bool {
    let texts = [&thread.details.title, &thread.details.preview];
    texts.into_iter().flatten().any(|text| text.to_lowercase().contains(needle))
}
