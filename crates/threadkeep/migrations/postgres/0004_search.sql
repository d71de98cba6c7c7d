-- The search index: documents of terms, and how far it is on each branch. It is derived from the other tables and can be made anew
-- at any time, so nothing here refers to them: it may lag behind and never keeps anything from being purged. SQLite's is a
-- database of its own.

CREATE TABLE search_docs (
  doc    BIGINT NOT NULL PRIMARY KEY,
  item   BIGINT,
  thread TEXT COLLATE "C",
  stamp  BIGINT NOT NULL,
  terms  TSVECTOR NOT NULL,
  CHECK ((item IS NULL) <> (thread IS NULL))
);
CREATE UNIQUE INDEX search_docs_item ON search_docs (item) WHERE item IS NOT NULL;
CREATE UNIQUE INDEX search_docs_thread ON search_docs (thread) WHERE thread IS NOT NULL;
CREATE INDEX search_docs_terms ON search_docs USING gin (terms);

-- A row changes each time when more of its branch is read.
CREATE TABLE search_progress (
  branch BIGINT NOT NULL PRIMARY KEY,
  depth  BIGINT NOT NULL,
  hash   BYTEA NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE search_state (
  only_row   BIGINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
  records    BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  top        BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO search_state (only_row, records, generation, top) VALUES (1, 0, 0, 0);

-- The server's statistics are copies of values, which a redaction can't reach; no plan needs those of content.
ALTER TABLE search_docs ALTER COLUMN terms SET STATISTICS 0;
ALTER TABLE items ALTER COLUMN content SET STATISTICS 0;
ALTER TABLE blobs ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE segments ALTER COLUMN bytes SET STATISTICS 0;
ALTER TABLE sources ALTER COLUMN state SET STATISTICS 0;
ALTER TABLE branches ALTER COLUMN label SET STATISTICS 0;
ALTER TABLE turns ALTER COLUMN outcome SET STATISTICS 0;
ALTER TABLE threads ALTER COLUMN title SET STATISTICS 0, ALTER COLUMN preview SET STATISTICS 0,
  ALTER COLUMN git_origin SET STATISTICS 0, ALTER COLUMN git_branch SET STATISTICS 0, ALTER COLUMN source SET STATISTICS 0,
  ALTER COLUMN persona SET STATISTICS 0, ALTER COLUMN end_reason SET STATISTICS 0, ALTER COLUMN extra SET STATISTICS 0;
