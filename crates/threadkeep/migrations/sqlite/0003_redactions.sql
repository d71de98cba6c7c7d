-- Redactions on record: who took which content away, when and why. They stand in one chain with the purges, whose numbers
-- they share, and which the next seal signs for.

CREATE TABLE redactions (
  number      INTEGER NOT NULL PRIMARY KEY,
  prev        BLOB NOT NULL,
  hash        BLOB NOT NULL UNIQUE,
  thread      TEXT NOT NULL,
  branch      BLOB,
  depth       INTEGER,
  item        BLOB,
  digest      BLOB,
  replacement BLOB,
  rule        TEXT,
  redacted_by TEXT NOT NULL,
  reason      TEXT NOT NULL,
  redacted_at INTEGER NOT NULL,
  CHECK ((item IS NULL) = (branch IS NULL) AND (item IS NULL) = (depth IS NULL) AND (item IS NULL) = (digest IS NULL))
) STRICT;
CREATE INDEX redactions_item ON redactions (item, number) WHERE item IS NOT NULL;
CREATE INDEX redactions_thread ON redactions (thread, number);

-- What cites other items, to be named when these are redacted.
CREATE INDEX items_with_sources ON items (key) WHERE sources IS NOT NULL;
