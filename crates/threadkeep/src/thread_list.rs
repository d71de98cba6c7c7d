//! Listing threads: pages by key, in a total order, whose cost does not grow with how far one has paged.

use std::ops::ControlFlow;

use crate::cursor::Cursor;
use crate::db::{Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::policy::Policy;
use crate::thread::{Details, Lineage, ListQuery, Page, Shelf, SortKey, Status, Thread};
use crate::threads::{Scope, read_listed, thread_columns};
use crate::time::Timestamp;

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

// The same order by an index alone: no row of a thread is read.
macro_rules! keys {
    ($scope:literal, $sort:literal, $cmp:literal, $dir:literal) => {
        concat!(
            "SELECT t.",
            $sort,
            ", t.id FROM threads t WHERE ",
            $scope,
            " AND (t.",
            $sort,
            ", t.id) ",
            $cmp,
            " (?2, ?3) ORDER BY t.",
            $sort,
            " ",
            $dir,
            ", t.id ",
            $dir,
            " LIMIT ?4"
        )
    };
}

// The same order by no index: rows are read and put in order.
macro_rules! sorted {
    ($sort:literal, $cmp:literal, $dir:literal) => {
        concat!(
            thread_columns!(),
            "WHERE CAST(?1 AS BYTEA) IS NULL AND (+t.",
            $sort,
            ", t.id) ",
            $cmp,
            " (?2, ?3) AND t.shelf BETWEEN ?4 AND ?5
              AND (CAST(?6 AS TEXT) IS NULL OR t.agent = ?6) AND (CAST(?7 AS TEXT) IS NULL OR t.provider = ?7)
              AND (CAST(?8 AS TEXT) IS NULL OR t.cwd = ?8) AND (CAST(?9 AS TEXT) IS NULL OR t.source = ?9)
              AND (CAST(?10 AS TEXT) IS NULL OR t.parent = ?10) AND (CAST(?11 AS TEXT) IS NULL OR t.forked_from = ?11)
              AND t.branches >= ?12
              ORDER BY +t.",
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
    ACTIVITY_DOWN_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "activity", "<", "DESC");
    ACTIVITY_DOWN_KEYS_IN = keys!("t.workspace = ?1", "activity", "<", "DESC");
    ACTIVITY_DOWN_SORTED = sorted!("activity", "<", "DESC");
    ACTIVITY_UP_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "activity", ">", "ASC");
    ACTIVITY_UP_KEYS_IN = keys!("t.workspace = ?1", "activity", ">", "ASC");
    ACTIVITY_UP_SORTED = sorted!("activity", ">", "ASC");
    UPDATED_DOWN_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "updated", "<", "DESC");
    UPDATED_DOWN_KEYS_IN = keys!("t.workspace = ?1", "updated", "<", "DESC");
    UPDATED_DOWN_SORTED = sorted!("updated", "<", "DESC");
    UPDATED_UP_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "updated", ">", "ASC");
    UPDATED_UP_KEYS_IN = keys!("t.workspace = ?1", "updated", ">", "ASC");
    UPDATED_UP_SORTED = sorted!("updated", ">", "ASC");
    CREATED_DOWN_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "created_at", "<", "DESC");
    CREATED_DOWN_KEYS_IN = keys!("t.workspace = ?1", "created_at", "<", "DESC");
    CREATED_DOWN_SORTED = sorted!("created_at", "<", "DESC");
    CREATED_UP_KEYS = keys!("CAST(?1 AS BYTEA) IS NULL", "created_at", ">", "ASC");
    CREATED_UP_KEYS_IN = keys!("t.workspace = ?1", "created_at", ">", "ASC");
    CREATED_UP_SORTED = sorted!("created_at", ">", "ASC");
    ONE = concat!(thread_columns!(), "WHERE t.id = ?1");
}

/// Reads a page. A thread whose row is damaged stays listed, and says so.
///
/// Where a page of the file can't be read, rows are looked for one by one, by the index that has their order; where that is the
/// damaged one, all rows are read without it.
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
    let start = (start.value, start.id);
    let listed = match by_rows(tx, scope, query, start.clone(), statement(scope, query)) {
        Err(damage @ Error::Corrupt { .. }) => match one_by_one(tx, scope, query, start.clone()) {
            Err(Error::Corrupt { .. }) => {
                by_rows(tx, scope, query, start, sorted_statement(query)).map_err(|_| damage)?
            }
            listed => listed?,
        },
        listed => listed?,
    };
    let (entries, more) = listed;
    let last = entries.last().filter(|_| more);
    let next_cursor =
        last.map(|last| Cursor { value: sort_value(last, query.sort), id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// Reads a page of rows in the order of a statement; says whether there are more.
fn by_rows(
    tx: &mut dyn Tx,
    scope: Scope,
    query: &ListQuery,
    start: (i64, String),
    statement: Statement,
) -> Result<(Vec<Thread>, bool)> {
    let limit = query.limit.min(MAX_PAGE);
    let (low, high) = query.shelves.bounds();
    let (children, forks) = match &query.lineage {
        None => (None, None),
        Some(Lineage::ChildrenOf(id)) => (Some(id.as_str()), None),
        Some(Lineage::ForksOf(id)) => (None, Some(id.as_str())),
    };
    let is_sorted_here = statement.name == sorted_statement(query).name;
    let needle = query.text.as_ref().map(|text| text.to_lowercase());
    // Where the rows are looked through here, more of them are asked for at a time.
    let chunk = if needle.is_some() || is_sorted_here { MAX_PAGE } else { limit } + 1;
    let mut entries: Vec<Thread> = Vec::new();
    let mut more = false;
    let mut from = Some(start).filter(|_| limit > 0);
    while let Some((value, id)) = from.take() {
        let args: [Value<'_>; 13] = [
            if is_sorted_here { Value::Null } else { scope.arg() },
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
        tx.query(statement, &args, &mut |row| {
            let thread = read_listed(row)?;
            rows += 1;
            if rows == chunk {
                from = Some((sort_value(&thread, query.sort), thread.id.to_string()));
            }
            if !is_in(&thread, scope) || needle.as_ref().is_some_and(|needle| !mentions(&thread, needle)) {
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
    Ok((entries, more))
}

/// Reads a page row by row: a row that can't be read is listed as a damaged thread, unless a filter would have to read it.
fn one_by_one(tx: &mut dyn Tx, scope: Scope, query: &ListQuery, start: (i64, String)) -> Result<(Vec<Thread>, bool)> {
    let limit = query.limit.min(MAX_PAGE);
    let mut entries: Vec<Thread> = Vec::new();
    let mut from = Some(start).filter(|_| limit > 0);
    while let Some((value, id)) = from.take() {
        let chunk = i64::try_from(MAX_PAGE).unwrap_or(i64::MAX);
        let args = [scope.arg(), value.into(), id.as_str().into(), chunk.into()];
        let keys =
            query_all(tx, keys_statement(scope, query), &args, |row| Ok((row.int(0)?, row.text(1)?.to_owned())))?;
        if keys.len() == MAX_PAGE {
            from = keys.last().cloned();
        }
        for (value, id) in keys {
            let found = match query_one(tx, ONE, &[id.as_str().into()], read_listed) {
                Ok(found) => found.filter(|thread| is_wanted(thread, query)),
                Err(Error::Corrupt { place, detail }) if !is_filtered(query) => {
                    damaged(&id, scope, (query.sort, value), format!("{place}: {detail}"))
                }
                Err(Error::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
            let Some(found) = found else { continue };
            if entries.len() == limit {
                return Ok((entries, true));
            }
            entries.push(found);
        }
    }
    Ok((entries, false))
}

/// What is known of a thread whose row can't be read: its id, and where it stands in the order that was asked for.
fn damaged(id: &str, scope: Scope, (sort, value): (SortKey, i64), damage: String) -> Option<Thread> {
    let workspace = match scope {
        Scope::All => WorkspaceId::from_uuid(uuid::Uuid::nil()),
        Scope::Workspace(workspace) => workspace,
    };
    Some(Thread {
        id: ThreadId::new(id).ok()?,
        workspace,
        workspace_name: String::new(),
        shelf: Shelf::Active,
        status: Status::from_word("unknown"),
        details: Details::default(),
        pinned: false,
        ephemeral: false,
        policy: Policy::default(),
        head: None,
        head_hash: None,
        forked_from: None,
        fork_point: None,
        items: 0,
        branches: 0,
        turns: 0,
        version: 0,
        epoch: 0,
        tick: 0,
        updated: if sort == SortKey::Updated { value } else { 0 },
        activity: if sort == SortKey::Activity { value } else { 0 },
        created_at: Timestamp(if sort == SortKey::Created { value } else { 0 }),
        updated_at: Timestamp(0),
        archived_at: None,
        trashed_at: None,
        ended_at: None,
        holder: None,
        live: false,
        damage: Some(damage),
    })
}

fn is_in(thread: &Thread, scope: Scope) -> bool {
    match scope {
        Scope::All => true,
        Scope::Workspace(workspace) => thread.workspace == workspace,
    }
}

/// Whether anything but the shelf is asked for, which only the row says.
fn is_filtered(query: &ListQuery) -> bool {
    let texts = [&query.agent, &query.provider, &query.cwd, &query.source, &query.text];
    query.branched || query.lineage.is_some() || texts.into_iter().any(Option::is_some)
}

/// The filters of the statements, for a row that was read alone.
fn is_wanted(thread: &Thread, query: &ListQuery) -> bool {
    let (low, high) = query.shelves.bounds();
    let details = &thread.details;
    let texts = [
        (&query.agent, &details.agent),
        (&query.provider, &details.provider),
        (&query.cwd, &details.cwd),
        (&query.source, &details.source),
    ];
    let is_of_line = match &query.lineage {
        None => true,
        Some(Lineage::ChildrenOf(id)) => details.parent.as_ref() == Some(id),
        Some(Lineage::ForksOf(id)) => thread.forked_from.as_ref() == Some(id),
    };
    let needle = query.text.as_ref().map(|text| text.to_lowercase());
    (low..=high).contains(&thread.shelf.to_int())
        && texts.into_iter().all(|(wanted, found)| wanted.is_none() || wanted == found)
        && is_of_line
        && (!query.branched || thread.branches >= 2)
        && needle.is_none_or(|needle| mentions(thread, &needle))
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

fn keys_statement(scope: Scope, query: &ListQuery) -> Statement {
    match (scope, query.sort, query.ascending) {
        (Scope::All, SortKey::Activity, false) => ACTIVITY_DOWN_KEYS,
        (Scope::All, SortKey::Activity, true) => ACTIVITY_UP_KEYS,
        (Scope::All, SortKey::Updated, false) => UPDATED_DOWN_KEYS,
        (Scope::All, SortKey::Updated, true) => UPDATED_UP_KEYS,
        (Scope::All, SortKey::Created, false) => CREATED_DOWN_KEYS,
        (Scope::All, SortKey::Created, true) => CREATED_UP_KEYS,
        (Scope::Workspace(_), SortKey::Activity, false) => ACTIVITY_DOWN_KEYS_IN,
        (Scope::Workspace(_), SortKey::Activity, true) => ACTIVITY_UP_KEYS_IN,
        (Scope::Workspace(_), SortKey::Updated, false) => UPDATED_DOWN_KEYS_IN,
        (Scope::Workspace(_), SortKey::Updated, true) => UPDATED_UP_KEYS_IN,
        (Scope::Workspace(_), SortKey::Created, false) => CREATED_DOWN_KEYS_IN,
        (Scope::Workspace(_), SortKey::Created, true) => CREATED_UP_KEYS_IN,
    }
}

fn sorted_statement(query: &ListQuery) -> Statement {
    match (query.sort, query.ascending) {
        (SortKey::Activity, false) => ACTIVITY_DOWN_SORTED,
        (SortKey::Activity, true) => ACTIVITY_UP_SORTED,
        (SortKey::Updated, false) => UPDATED_DOWN_SORTED,
        (SortKey::Updated, true) => UPDATED_UP_SORTED,
        (SortKey::Created, false) => CREATED_DOWN_SORTED,
        (SortKey::Created, true) => CREATED_UP_SORTED,
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
