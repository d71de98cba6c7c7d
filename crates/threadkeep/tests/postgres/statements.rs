//! Every statement text is written once; here both engines say whether they can take it.

use postgres::types::Type;
use threadkeep::{postgres_statement_texts, statement_texts};

use crate::migrated::{Migrated, said};
use crate::rules;
use crate::server::server;

#[test]
fn every_statement_can_be_prepared_on_postgresql() {
    let Some(server) = server() else { return };
    let mut client = Migrated::new(&server).connect();
    let mut failures = Vec::new();
    let shared = statement_texts().into_iter().map(|(name, _, sql)| (name, sql));
    for (name, sql) in shared.chain(postgres_statement_texts()) {
        match client.prepare(&sql) {
            Err(error) => failures.push(format!("{name}: {}\n{sql}", said(&error))),
            Ok(prepared) => {
                // A driver binds and reads 64-bit numbers, texts and bytes. The number of `SELECT 1` is never read.
                let only_whether = sql.starts_with("SELECT 1 FROM");
                let columns = prepared.columns().iter().map(|column| column.type_().clone());
                let columns = columns.filter(|kind| !(only_whether && *kind == Type::INT4));
                let mut others =
                    prepared.params().iter().cloned().chain(columns).filter(|kind| !known(kind)).peekable();
                if others.peek().is_some() {
                    let others: Vec<String> = others.map(|kind| kind.to_string()).collect();
                    failures.push(format!("{name}: parameters or columns of type {}\n{sql}", others.join(", ")));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} statements fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

fn known(kind: &Type) -> bool {
    [Type::INT8, Type::TEXT, Type::BYTEA].contains(kind)
}

#[test]
fn every_statement_can_be_prepared_on_sqlite() {
    let store = rules::sqlite();
    let prepare = |(name, sql, _): (String, String, String)| {
        store.connection.prepare(&sql).err().map(|error| format!("{name}: {error}\n{sql}"))
    };
    let failures: Vec<String> = statement_texts().into_iter().filter_map(prepare).collect();
    assert!(failures.is_empty(), "{} statements fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

/// The parameters are rewritten without a look at literals, so no literal may hold what looks like one.
#[test]
fn no_literal_holds_a_parameter_sign() {
    let shared = statement_texts().into_iter().map(|(name, _, sql)| (name, sql));
    for (name, sql) in shared.chain(postgres_statement_texts()) {
        let quoted = |quote: char| sql.split(quote).skip(1).step_by(2).collect::<String>();
        let literals = quoted('\'') + &quoted('"');
        assert!(!literals.contains(['$', '?']), "{name}: {sql}");
    }
}
