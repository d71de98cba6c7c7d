-- Retention: the rules that a store and its workspaces have, and a receipt of every thread that a run took away or gave back.

-- The rules of the store itself (its place is empty), and of workspaces, which have theirs in the place of the store's. Times are in
-- milliseconds. Without a row nothing is ever taken.
CREATE TABLE retention_rules (
  place           TEXT NOT NULL PRIMARY KEY,
  workspace       BLOB REFERENCES workspaces (id) ON DELETE CASCADE,
  max_count       INTEGER CHECK (max_count > 0),
  max_age         INTEGER CHECK (max_age > 0),
  max_bytes       INTEGER CHECK (max_bytes > 0),
  max_store_bytes INTEGER CHECK (max_store_bytes > 0),
  grace           INTEGER NOT NULL CHECK (grace >= 0),
  trash_grace     INTEGER CHECK (trash_grace >= 0),
  archived        INTEGER NOT NULL CHECK (archived IN (0, 1)),
  forked          INTEGER NOT NULL CHECK (forked IN (0, 1)),
  deleted         INTEGER NOT NULL CHECK (deleted IN (0, 1)),
  set_at          INTEGER NOT NULL,
  CHECK ((workspace IS NULL) = (place = '')),
  CHECK (workspace IS NULL OR max_store_bytes IS NULL)
) STRICT;
CREATE INDEX retention_rules_workspace ON retention_rules (workspace) WHERE workspace IS NOT NULL;

-- What was taken, by which rule. A receipt outlives its thread and says nothing of what the thread said. That of a purge names its
-- record in the chain of what was taken away on purpose.
CREATE TABLE retention_receipts (
  number     INTEGER NOT NULL PRIMARY KEY,
  run        BLOB NOT NULL,
  thread     TEXT NOT NULL,
  workspace  BLOB NOT NULL,
  step       TEXT NOT NULL,
  rule       TEXT,
  bound      INTEGER,
  items      INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  head_hash  BLOB,
  epoch      INTEGER NOT NULL,
  tick       INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  record     INTEGER,
  made_at    INTEGER NOT NULL,
  CHECK ((step = 'purged') = (record IS NOT NULL)),
  CHECK (step = 'restored' OR rule IS NOT NULL)
) STRICT;
CREATE INDEX retention_receipts_thread ON retention_receipts (thread, number);
CREATE INDEX retention_receipts_workspace ON retention_receipts (workspace, number);

CREATE TRIGGER retention_receipts_stay_as_they_are
BEFORE UPDATE OF number, run, thread, step, rule, bound, items, bytes, head_hash, epoch, tick, changed_at, record, made_at
ON retention_receipts
BEGIN
  SELECT RAISE(ABORT, 'a receipt stays as it is');
END;
