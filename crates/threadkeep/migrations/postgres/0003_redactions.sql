-- Redactions on record: who took which content away, when and why. They stand in one chain with the purges, whose numbers
-- they share, and which the next seal signs for. The same tables as for SQLite.

CREATE TABLE redactions (
  number      BIGINT NOT NULL PRIMARY KEY,
  prev        BYTEA NOT NULL,
  hash        BYTEA NOT NULL UNIQUE,
  thread      TEXT COLLATE "C" NOT NULL,
  branch      BYTEA,
  depth       BIGINT,
  item        BYTEA,
  digest      BYTEA,
  replacement BYTEA,
  rule        TEXT COLLATE "C",
  redacted_by TEXT COLLATE "C" NOT NULL,
  reason      TEXT COLLATE "C" NOT NULL,
  redacted_at BIGINT NOT NULL,
  CHECK ((item IS NULL) = (branch IS NULL) AND (item IS NULL) = (depth IS NULL) AND (item IS NULL) = (digest IS NULL))
);
CREATE INDEX redactions_item ON redactions (item, number) WHERE item IS NOT NULL;
CREATE INDEX redactions_thread ON redactions (thread, number);

-- What cites other items, to be named when these are redacted.
CREATE INDEX items_with_sources ON items (key) WHERE sources IS NOT NULL;
