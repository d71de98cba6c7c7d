//! What a schema is made of, and how one differs from what the migrations make.

use std::collections::BTreeMap;

use crate::finding::Examination;

/// What a schema is made of: kind and name, and what is said of it.
pub(crate) type Listing = BTreeMap<(String, String), String>;

const MAKE: &str = "make it anew as it is written here, or copy the store with `threadkeep copy` into a new one, which has the right schema";
const RESTORE: &str = "see with `threadkeep verify` what is left, and restore a backup of the store";
/// The kind of a table's whole text; beside it stand its parts.
pub(crate) const TEXT: &str = "text";
const REMOVE: &str = "remove it, unless you put it there and know what it does";

/// Reads a listing that is written down: a line for each part, its fields apart by tabs.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite makes its own in memory"))]
pub(crate) fn read(text: &str) -> Listing {
    let parts = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, '\t').map(str::to_owned);
        Some(((fields.next()?, fields.next()?), fields.next()?))
    });
    parts.collect()
}

/// Names every part that is missing, differs, or is not ours.
pub(crate) fn compare(found: &mut Examination, expected: &Listing, there: &Listing) {
    for ((kind, name), definition) in expected {
        let place = format!("{kind} {name}");
        let way_out = if matches!(kind.as_str(), "table" | "column") { RESTORE } else { MAKE };
        match there.get(&(kind.clone(), name.clone())) {
            Some(other) if other == definition => {}
            Some(_) if kind == TEXT => {}
            Some(other) => {
                let what = format!("the {kind} is `{other}` and should be `{definition}`");
                found.error("schema-differs", place, (what, way_out));
            }
            // What a missing table had is missing with it.
            None if kind != TEXT && (is_alone(name) || has_table(there, name)) => {
                let what = format!("the {kind} is missing; it should be `{definition}`");
                found.error("schema-missing", place, (what, way_out));
            }
            None => {}
        }
    }
    name_strangers(found, expected, there);
    name_texts(found, expected, there);
}

/// Names tables whose text differs though none of their parts does: in a rule that is no part of its own.
fn name_texts(found: &mut Examination, expected: &Listing, there: &Listing) {
    for ((_, name), text) in expected.iter().filter(|((kind, _), _)| kind == TEXT) {
        let other = there.get(&(TEXT.to_owned(), name.clone()));
        let is_told = found.findings.iter().any(|finding| is_of_table(&finding.place, name));
        if other.is_some_and(|other| other != text) && !is_told {
            let what = format!("the table is `{}` and should be `{text}`", other.map_or("", String::as_str));
            found.error("schema-differs", format!("table {name}"), (what, MAKE));
        }
    }
}

/// Names what no migration makes.
fn name_strangers(found: &mut Examination, expected: &Listing, there: &Listing) {
    for ((kind, name), definition) in there {
        let is_known = expected.contains_key(&(kind.clone(), name.clone()));
        // What a strange table has is told with it; but what runs by itself is told wherever it is.
        let acts = matches!(kind.as_str(), "trigger" | "view");
        if is_known || kind == TEXT || !(acts || is_alone(name) || has_table(expected, name)) {
            continue;
        }
        let what = format!("no migration makes this {kind}: `{definition}`");
        let place = format!("{kind} {name}");
        match kind.as_str() {
            // It can change or refuse what is written.
            "column" | "trigger" | "constraint" | "foreign key" => found.warn("schema-extra", place, (what, REMOVE)),
            _ => found.note("schema-extra", place, (what, REMOVE)),
        }
    }
}

/// Whether this is a part of the schema itself, and not of a table.
fn is_alone(name: &str) -> bool {
    !name.contains('.')
}

fn has_table(listing: &Listing, name: &str) -> bool {
    let table = name.split('.').next().unwrap_or(name);
    listing.contains_key(&("table".to_owned(), table.to_owned()))
}

fn is_of_table(place: &str, table: &str) -> bool {
    let name = place.rsplit(' ').next().unwrap_or(place);
    name.split('.').next() == Some(table)
}

#[cfg(test)]
mod tests {
    use super::{compare, read};
    use crate::finding::{Examination, Severity};

    #[test]
    fn what_is_missing_or_differs_or_is_not_ours_is_named() {
        let expected = read(
            "table\ta\tplain\ncolumn\ta.x\tbigint\ncolumn\ta.y\ttext\nindex\ta.i\tON a (x)\ntable\tb\tplain\ncolumn\tb.x\tbigint\n",
        );
        let there = read(
            "table\ta\tplain\ncolumn\ta.x\tinteger\ncolumn\ta.z\ttext\nindex\ta.i\tON a (x)\ntable\tc\tplain\ncolumn\tc.x\tbigint\n",
        );
        let mut found = Examination::of(String::new());
        compare(&mut found, &expected, &there);
        let found = found.sorted().findings;
        let said: Vec<_> =
            found.iter().map(|finding| (finding.severity, finding.code, finding.place.as_str())).collect();
        assert_eq!(
            said,
            [
                (Severity::Error, "schema-differs", "column a.x"),
                (Severity::Error, "schema-missing", "column a.y"),
                (Severity::Error, "schema-missing", "table b"),
                (Severity::Warning, "schema-extra", "column a.z"),
                (Severity::Note, "schema-extra", "table c"),
            ]
        );
        assert!(found[0].what.contains("`integer`") && found[0].what.contains("`bigint`"));
        let mut none = Examination::of(String::new());
        compare(&mut none, &expected, &expected);
        assert_eq!(none.worst(), None);
    }
}
