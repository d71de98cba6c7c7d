-- Retention: the rules that a store and its workspaces have, and a receipt of every thread that a run took away or gave back. The
-- same tables as for SQLite.

-- The rules of the store itself (its place is empty), and of workspaces, which have theirs in the place of the store's. Times are in
-- milliseconds. Without a row nothing is ever taken.
CREATE TABLE retention_rules (
  place           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workspace       BYTEA REFERENCES workspaces (id) ON DELETE CASCADE,
  max_count       BIGINT CHECK (max_count > 0),
  max_age         BIGINT CHECK (max_age > 0),
  max_bytes       BIGINT CHECK (max_bytes > 0),
  max_store_bytes BIGINT CHECK (max_store_bytes > 0),
  grace           BIGINT NOT NULL CHECK (grace >= 0),
  trash_grace     BIGINT CHECK (trash_grace >= 0),
  archived        BIGINT NOT NULL CHECK (archived IN (0, 1)),
  forked          BIGINT NOT NULL CHECK (forked IN (0, 1)),
  deleted         BIGINT NOT NULL CHECK (deleted IN (0, 1)),
  set_at          BIGINT NOT NULL,
  CHECK ((workspace IS NULL) = (place = '')),
  CHECK (workspace IS NULL OR max_store_bytes IS NULL)
);
CREATE INDEX retention_rules_workspace ON retention_rules (workspace) WHERE workspace IS NOT NULL;

-- What was taken, by which rule. A receipt outlives its thread and says nothing of what the thread said. That of a purge names its
-- record in the chain of what was taken away on purpose.
CREATE TABLE retention_receipts (
  number     BIGINT NOT NULL PRIMARY KEY,
  run        BYTEA NOT NULL,
  thread     TEXT COLLATE "C" NOT NULL,
  workspace  BYTEA NOT NULL,
  step       TEXT COLLATE "C" NOT NULL,
  rule       TEXT COLLATE "C",
  bound      BIGINT,
  items      BIGINT NOT NULL,
  bytes      BIGINT NOT NULL,
  head_hash  BYTEA,
  epoch      BIGINT NOT NULL,
  tick       BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  record     BIGINT,
  made_at    BIGINT NOT NULL,
  CHECK ((step = 'purged') = (record IS NOT NULL)),
  CHECK (step = 'restored' OR rule IS NOT NULL)
);
CREATE INDEX retention_receipts_thread ON retention_receipts (thread, number);
CREATE INDEX retention_receipts_workspace ON retention_receipts (workspace, number);

CREATE FUNCTION retention_receipts_stay_as_they_are() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a receipt stays as it is';
END;
$$;
CREATE TRIGGER retention_receipts_stay_as_they_are
BEFORE UPDATE OF number, run, thread, step, rule, bound, items, bytes, head_hash, epoch, tick, changed_at, record, made_at
ON retention_receipts FOR EACH ROW EXECUTE FUNCTION retention_receipts_stay_as_they_are();
