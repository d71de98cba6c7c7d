//! The tables of a store on a server.

use crate::rows::Rows;

/// A store on a server.
pub(crate) struct Server(postgres::Client);

impl Server {
    /// Connects to a schema; triggers and foreign keys are out of the way.
    pub(crate) fn connect(mut config: postgres::Config, schema: &str) -> Self {
        config.options(&format!("-c search_path={schema} -c session_replication_role=replica"));
        Self(config.connect(postgres::NoTls).unwrap())
    }

    /// Keeps all tables as they are now, under a name.
    pub(crate) fn keep(&mut self, name: &str) {
        self.run(&format!("CREATE SCHEMA {name}"));
        for table in self.tables() {
            self.run(&format!("CREATE TABLE {name}.{table} AS TABLE {table}"));
        }
    }

    /// Puts all tables back as they were kept.
    pub(crate) fn put_back(&mut self, name: &str) {
        let tables = self.tables();
        let mut sql = format!("BEGIN; TRUNCATE {};", tables.join(", "));
        for table in tables {
            sql += &format!("INSERT INTO {table} SELECT * FROM {name}.{table};");
        }
        self.run(&(sql + "COMMIT"));
    }

    fn tables(&mut self) -> Vec<String> {
        let sql = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY 1";
        self.read(sql).into_iter().map(|mut row| row.remove(0)).collect()
    }
}

impl Rows for Server {
    fn run(&mut self, sql: &str) {
        self.0.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn read(&mut self, sql: &str) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for message in self.0.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")) {
            if let postgres::SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect());
            }
        }
        rows
    }

    fn bytes(&self, hex: &str) -> String {
        format!("CAST('\\x{hex}' AS bytea)")
    }

    fn hex(&self, column: &str) -> String {
        format!("encode({column}, 'hex')")
    }
}
