//! Rows of a database that became records: objects of the columns in their order, and the table under `table`.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde_json::{Map, Value};
use threadkeep::Timestamp;

use crate::codec::Skip;
use crate::json::read;

/// The longest text of a row that is made a thread's metadata.
const MAX_WORD_BYTES: usize = 4096;

/// A row.
#[derive(Debug, Clone)]
pub(crate) struct Row(Map<String, Value>);

impl Row {
    /// Reads a record.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Skip> {
        match read::<Value>(bytes) {
            Ok((Value::Object(columns), _)) => Ok(Self(columns)),
            Ok(_) => Err(Skip { reason: "a row that is no object".to_owned() }),
            Err(error) => Err(Skip { reason: format!("unreadable row: {error}") }),
        }
    }

    /// A row that is made here.
    pub(crate) fn new() -> Self {
        Self(Map::new())
    }

    /// Its columns, without the name of its table.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().filter(|(name, _)| *name != "table").map(|(name, value)| (name.as_str(), value))
    }

    /// The same with another value in a column.
    pub(crate) fn set(&mut self, column: &str, value: Value) {
        self.0.insert(column.to_owned(), value);
    }

    /// The table that it stands in.
    pub(crate) fn table(&self) -> &str {
        self.0.get("table").and_then(Value::as_str).unwrap_or_default()
    }

    /// A column's text; nothing for NULL and for a column that is not there.
    pub(crate) fn text(&self, column: &str) -> Result<Option<&str>, Skip> {
        match self.0.get(column) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(column, "no text")),
        }
    }

    /// A column's text that must be there.
    pub(crate) fn required(&self, column: &str) -> Result<&str, Skip> {
        self.text(column)?.ok_or_else(|| self.wrong(column, "nothing"))
    }

    /// A column's number; nothing for NULL and for a column that is not there.
    pub(crate) fn int(&self, column: &str) -> Result<Option<i64>, Skip> {
        match self.0.get(column) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| self.wrong(column, "no whole number")),
        }
    }

    /// A column's number that can't be negative.
    pub(crate) fn count(&self, column: &str) -> Result<Option<u64>, Skip> {
        let number = self.int(column)?;
        number.map(|number| u64::try_from(number).map_err(|_| self.wrong(column, "a negative number"))).transpose()
    }

    /// A number that may be a float, as JSON writes it.
    pub(crate) fn number(&self, column: &str) -> Result<Option<String>, Skip> {
        match self.0.get(column) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.wrong(column, "no number")),
        }
    }

    /// The bytes of a column: of its text, or of what is no text and stands in the row in hexadecimal.
    pub(crate) fn bytes(&self, column: &str) -> Result<Vec<u8>, Skip> {
        match self.0.get(column) {
            Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
            Some(Value::Object(object)) => {
                let hex = object.get("hex").and_then(Value::as_str);
                hex.and_then(unhex).ok_or_else(|| self.wrong(column, "neither text nor bytes"))
            }
            None | Some(Value::Null) => Err(self.wrong(column, "nothing")),
            Some(_) => Err(self.wrong(column, "neither text nor bytes")),
        }
    }

    /// The bytes of the columns that hold no text.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.values().filter_map(|value| unhex(value.as_object()?.get("hex")?.as_str()?))
    }

    /// A short text for a thread's metadata: nothing for what is blank, too long, or no text.
    pub(crate) fn word(&self, column: &str) -> Option<String> {
        let text = self.text(column).ok().flatten()?;
        let fits = !text.trim().is_empty() && text.len() <= MAX_WORD_BYTES && !text.contains('\0');
        fits.then(|| text.to_owned())
    }

    /// The id of a row in some form that can be shown.
    pub(crate) fn label(&self, column: &str) -> String {
        match self.0.get(column) {
            Some(Value::String(text)) => text.chars().filter(|letter| !letter.is_control()).take(64).collect(),
            Some(value) => value.to_string().chars().take(64).collect(),
            None => "?".to_owned(),
        }
    }

    /// A time in seconds, as CodeWhale has it.
    pub(crate) fn seconds(&self, column: &str) -> Option<Timestamp> {
        let seconds = self.int(column).ok().flatten()?;
        Some(Timestamp(seconds.checked_mul(1_000)?))
    }

    /// A time in nanoseconds, as newt has it.
    pub(crate) fn nanos(&self, column: &str) -> Option<Timestamp> {
        self.int(column).ok().flatten().map(|nanos| Timestamp(nanos.div_euclid(1_000_000)))
    }

    /// The whole row as JSON, without the name of its table.
    pub(crate) fn json(&self) -> String {
        let mut columns = self.0.clone();
        columns.remove("table");
        Value::Object(columns).to_string()
    }

    /// What is wrong with a column.
    pub(crate) fn wrong(&self, column: &str, found: &str) -> Skip {
        let id =
            ["id", "request_id", "instance_id", "thread_id", "seq"].into_iter().find(|id| self.0.contains_key(*id));
        let row = id.map(|id| format!(" {}", self.label(id))).unwrap_or_default();
        Skip { reason: format!("row{row} of {}: {found} in `{column}`", self.table()) }
    }
}

/// Bytes by their digits in hexadecimal.
pub(crate) fn unhex(digits: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()
}

/// A list of columns for a statement: each as it is where the table has it, else `fallback` under its name.
pub(crate) fn columns(found: &dyn Fn(&str) -> bool, wanted: &[(&str, &str)]) -> String {
    let column = |(name, fallback): &(&str, &str)| match found(name) {
        true => (*name).to_owned(),
        false => format!("{fallback} AS {name}"),
    };
    wanted.iter().map(column).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Row, columns};

    #[test]
    fn a_column_of_the_wrong_type_is_named() {
        let row = Row::read(br#"{"table":"t","id":7,"a":1.5,"b":{"hex":"ff00"},"c":"x","d":-1}"#).unwrap();
        assert_eq!(row.int("a").unwrap_err().reason, "row 7 of t: no whole number in `a`");
        assert_eq!(row.text("b").unwrap_err().reason, "row 7 of t: no text in `b`");
        assert_eq!(row.bytes("b").unwrap(), [0xff, 0]);
        assert_eq!(row.bytes("c").unwrap(), b"x");
        assert_eq!(row.count("d").unwrap_err().reason, "row 7 of t: a negative number in `d`");
        assert_eq!(row.required("e").unwrap_err().reason, "row 7 of t: nothing in `e`");
        assert!(Row::read(b"[]").is_err());
    }

    #[test]
    fn columns_that_are_not_there_have_a_fallback() {
        let found = |name: &str| name == "a";
        assert_eq!(columns(&found, &[("a", "''"), ("b", "NULL")]), "a, NULL AS b");
    }
}
