//! What a server is asked about itself and about a store's schema. Texts and numbers come back, no truth values.

use crate::db::Statement;

/// Declares questions; they are for one engine alone, and are not among the statements that both prepare.
macro_rules! questions {
    ($($(#[$meta:meta])* $name:ident = $sql:expr;)+) => {
        $($(#[$meta])* pub(super) const $name: Statement = Statement { name: stringify!($name), sql: $sql };)+
    };
}

/// The settings that are told as they are.
pub(super) const SETTING_FACTS: [&str; 9] = [
    "autovacuum",
    "data_checksums",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "synchronous_commit",
    "wal_level",
];

questions! {
    BACKEND = "SELECT pg_catalog.pg_backend_pid()";
    SERVER = "SELECT pg_catalog.current_setting('server_version_num'), pg_catalog.current_setting('server_version'),
        CAST(d.datname AS TEXT), CAST(pg_catalog.pg_encoding_to_char(d.encoding) AS TEXT), CAST(d.datcollate AS TEXT),
        CASE WHEN pg_catalog.pg_is_in_recovery() THEN '1' ELSE '0' END,
        coalesce(CAST(CAST(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()) AS BIGINT) AS TEXT), '?')
        FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";
    ENCRYPTION = "SELECT CASE WHEN ssl THEN '1' ELSE '0' END, coalesce(version, ''), coalesce(cipher, '')
        FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()";
    // What the session was given when it began, and not what the store has set since.
    SETTINGS = "SELECT name, reset_val FROM pg_catalog.pg_settings WHERE reset_val IS NOT NULL AND name IN ('fsync', 'full_page_writes',
          'synchronous_commit', 'autovacuum', 'track_counts', 'zero_damaged_pages', 'ignore_checksum_failure', 'data_checksums',
          'idle_session_timeout', 'transaction_timeout', 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
          'wal_level', 'default_transaction_read_only')
        ORDER BY 1";
    ROLE_NAME = "SELECT CAST(current_user AS TEXT)";
    ROLE = "SELECT CAST(r.rolsuper AS INT), CAST(r.rolbypassrls AS INT), r.rolconnlimit, d.datconnlimit,
        pg_catalog.age(d.datfrozenxid), pg_catalog.mxid_age(d.datminmxid)
        FROM pg_catalog.pg_roles r, pg_catalog.pg_database d
        WHERE r.rolname = current_user AND d.datname = pg_catalog.current_database()";
    CONNECTIONS = "SELECT CAST(pg_catalog.current_setting('max_connections') AS BIGINT),
        CAST(pg_catalog.current_setting('superuser_reserved_connections') AS BIGINT), count(*),
        count(*) FILTER (WHERE usename = current_user), count(*) FILTER (WHERE datname = pg_catalog.current_database())
        FROM pg_catalog.pg_stat_activity WHERE datname IS NOT NULL";
    LONG_TRANSACTIONS = "SELECT CAST(pid AS TEXT), coalesce(CAST(usename AS TEXT), ''), coalesce(application_name, ''), coalesce(state, ''),
        CAST(CAST(extract(epoch FROM pg_catalog.clock_timestamp() - xact_start) AS BIGINT) AS TEXT)
        FROM pg_catalog.pg_stat_activity
        WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() AND backend_type = 'client backend'
          AND xact_start < pg_catalog.clock_timestamp() - interval '5 minutes' ORDER BY xact_start LIMIT 20";
    PREPARED = "SELECT gid, CAST(CAST(extract(epoch FROM pg_catalog.clock_timestamp() - prepared) AS BIGINT) AS TEXT)
        FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()
          AND prepared < pg_catalog.clock_timestamp() - interval '5 minutes' ORDER BY prepared LIMIT 20";
    SLOTS = "SELECT CAST(slot_name AS TEXT) FROM pg_catalog.pg_replication_slots WHERE NOT active ORDER BY 1 LIMIT 20";
    SCHEMA = "SELECT CAST(pg_catalog.has_schema_privilege(oid, 'USAGE') AS INT) FROM pg_catalog.pg_namespace
        WHERE nspname = CAST(CAST(?1 AS TEXT) AS name)";
    TABLES = "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(CAST(?1 AS TEXT) AS name) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')";
    APPLIED = "SELECT coalesce(max(number), 0) FROM schema_migrations";
    RIGHTS = "SELECT CAST(c.relname AS TEXT), CAST(pg_catalog.has_table_privilege(c.oid, 'SELECT') AS INT),
        CAST(pg_catalog.has_table_privilege(c.oid, 'INSERT') AS INT), CAST(pg_catalog.has_table_privilege(c.oid, 'UPDATE') AS INT),
        CAST(pg_catalog.has_table_privilege(c.oid, 'DELETE') AS INT), CAST(pg_catalog.pg_has_role(c.relowner, 'USAGE') AS INT),
        (SELECT CAST(r.rolsuper AS INT) FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(CAST(?1 AS TEXT) AS name) AND c.relkind IN ('r', 'p') ORDER BY 1";
    UPKEEP = "SELECT CAST(c.relname AS TEXT), pg_catalog.pg_total_relation_size(c.oid), coalesce(s.n_live_tup, 0),
        coalesce(s.n_dead_tup, 0), CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.unnest(c.reloptions) o
          WHERE o IN ('autovacuum_enabled=false', 'autovacuum_enabled=off')) THEN 0 ELSE 1 END
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_catalog.pg_stat_user_tables s ON s.relid = c.oid
        WHERE n.nspname = CAST(CAST(?1 AS TEXT) AS name) AND c.relkind IN ('r', 'm') ORDER BY 1";
    INVALID_INDEXES = "SELECT CAST(t.relname AS TEXT), CAST(i.relname AS TEXT)
        FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname = CAST(CAST(?1 AS TEXT) AS name) AND NOT (x.indisvalid AND x.indisready) ORDER BY 1, 2";
    // Everything that a schema is made of: kind, name, and what is said of it, without the schema's own name.
    PARTS = "WITH n AS (SELECT oid, pg_catalog.quote_ident(nspname) AS name FROM pg_catalog.pg_namespace
          WHERE nspname = CAST(CAST(?1 AS TEXT) AS name)),
        t AS (SELECT c.* FROM pg_catalog.pg_class c JOIN n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')),
        parts AS (SELECT 'table' AS kind, CAST(t.relname AS TEXT) AS part,
          CASE t.relkind WHEN 'r' THEN 'a table' WHEN 'p' THEN 'partitioned' ELSE 'a view' END
          || CASE t.relpersistence WHEN 'u' THEN ', not logged: a crash empties it' ELSE '' END
          || CASE WHEN t.relrowsecurity THEN ', with row security' ELSE '' END AS said FROM t
        UNION ALL SELECT 'column', t.relname || '.' || a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
          || CASE WHEN a.attcollation <> y.typcollation THEN ' COLLATE ' || (SELECT CAST(pg_catalog.quote_ident(l.collname) AS TEXT)
            FROM pg_catalog.pg_collation l WHERE l.oid = a.attcollation) ELSE '' END
          || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
          || CASE WHEN a.attstorage <> y.typstorage THEN ' STORAGE ' || CAST(a.attstorage AS TEXT) ELSE '' END
          || CASE WHEN a.attgenerated <> '' OR a.attidentity <> '' THEN ' COMPUTED' ELSE '' END
          || coalesce(' DEFAULT ' || (SELECT pg_catalog.pg_get_expr(f.adbin, f.adrelid) FROM pg_catalog.pg_attrdef f
            WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum), '')
          FROM t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
          WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT 'constraint', t.relname || '.' || k.conname,
          replace(pg_catalog.pg_get_constraintdef(k.oid), n.name || '.', '')
          FROM n, t JOIN pg_catalog.pg_constraint k ON k.conrelid = t.oid WHERE k.contype IN ('p', 'u', 'f', 'c', 'x')
        UNION ALL SELECT 'index', t.relname || '.' || i.relname,
          replace(pg_catalog.pg_get_indexdef(i.oid), n.name || '.', '')
          FROM n, t JOIN pg_catalog.pg_index x ON x.indrelid = t.oid JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
          WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u', 'x'))
        UNION ALL SELECT 'trigger', t.relname || '.' || g.tgname,
          replace(pg_catalog.pg_get_triggerdef(g.oid), n.name || '.', '')
          || CASE g.tgenabled WHEN 'O' THEN '' WHEN 'D' THEN ', switched off' ELSE ', enabled for ' || CAST(g.tgenabled AS TEXT) END
          FROM n, t JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal
        UNION ALL SELECT 'function', CAST(p.proname AS TEXT), 'LANGUAGE ' || l.lanname
          || CASE WHEN p.prosecdef THEN ' SECURITY DEFINER' ELSE '' END
          || coalesce(' SET ' || replace(pg_catalog.array_to_string(p.proconfig, ' '), n.name, 'its schema'), '')
          || ' AS ' || p.prosrc
          FROM n JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid JOIN pg_catalog.pg_language l ON l.oid = p.prolang)
        SELECT kind, part, pg_catalog.btrim(pg_catalog.regexp_replace(said, '[[:space:]]+', ' ', 'g')) FROM parts ORDER BY 1, 2";
}
