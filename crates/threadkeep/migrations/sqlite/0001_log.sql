-- The log: workspaces, threads, branches, items, blobs; turns, claims, imported files.
-- An item's key is its branch's number in the upper 31 bits and its depth in the lower 32,
-- so the table is clustered by (branch, depth) and that pair is unique.

CREATE TABLE counters (
  name  TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT;

CREATE TABLE facts (
  name  TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT;

CREATE TABLE writers (
  key        INTEGER NOT NULL PRIMARY KEY,
  id         BLOB NOT NULL UNIQUE,
  machine    TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE workspaces (
  id         BLOB NOT NULL PRIMARY KEY,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE workspace_keys (
  key       TEXT NOT NULL PRIMARY KEY,
  kind      TEXT NOT NULL,
  workspace BLOB NOT NULL REFERENCES workspaces (id)
) STRICT;
CREATE INDEX workspace_keys_workspace ON workspace_keys (workspace);

CREATE TABLE threads (
  id              TEXT NOT NULL PRIMARY KEY,
  workspace       BLOB NOT NULL REFERENCES workspaces (id),
  shelf           INTEGER NOT NULL CHECK (shelf BETWEEN 0 AND 3),
  status          TEXT NOT NULL,
  version         INTEGER NOT NULL,
  epoch           INTEGER NOT NULL,
  tick            INTEGER NOT NULL,
  updated         INTEGER NOT NULL,
  activity        INTEGER NOT NULL,
  head            INTEGER,
  head_hash       BLOB,
  head_is_tip     INTEGER NOT NULL,
  fork_item       INTEGER REFERENCES items (key),
  forked_from     TEXT,
  items           INTEGER NOT NULL,
  branches        INTEGER NOT NULL,
  turns           INTEGER NOT NULL,
  open_turn       INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  archived_at     INTEGER,
  trashed_at      INTEGER,
  ended_at        INTEGER,
  pinned          INTEGER NOT NULL,
  ephemeral       INTEGER NOT NULL,
  policy          TEXT NOT NULL,
  title           TEXT,
  preview         TEXT,
  agent           TEXT,
  source          TEXT,
  provider        TEXT,
  model           TEXT,
  cwd             TEXT,
  working_path    TEXT,
  rollout_path    TEXT,
  git_sha         TEXT,
  git_branch      TEXT,
  git_origin      TEXT,
  cli_version     TEXT,
  sandbox_policy  TEXT,
  approval_policy TEXT,
  memory_mode     TEXT,
  persona         TEXT,
  parent          TEXT,
  end_reason      TEXT,
  token_usage     TEXT,
  extra           TEXT NOT NULL,
  CHECK ((head IS NULL) = (head_hash IS NULL))
) STRICT;
CREATE INDEX threads_updated ON threads (updated, id);
CREATE INDEX threads_workspace_updated ON threads (workspace, updated, id);
CREATE INDEX threads_activity ON threads (activity, id);
CREATE INDEX threads_workspace_activity ON threads (workspace, activity, id);
CREATE INDEX threads_created ON threads (created_at, id);
CREATE INDEX threads_workspace_created ON threads (workspace, created_at, id);
CREATE INDEX threads_title ON threads (title) WHERE title IS NOT NULL;
CREATE INDEX threads_parent ON threads (parent) WHERE parent IS NOT NULL;
CREATE INDEX threads_forked_from ON threads (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX threads_purging ON threads (id) WHERE shelf = 3 AND status = 'purging';
CREATE INDEX threads_stubs ON threads (id) WHERE shelf = 3;
CREATE INDEX threads_fork_item ON threads (fork_item) WHERE fork_item IS NOT NULL;

CREATE TABLE branches (
  key        INTEGER NOT NULL PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
  thread     TEXT NOT NULL REFERENCES threads (id),
  id         BLOB NOT NULL UNIQUE,
  parent     INTEGER REFERENCES items (key),
  base       INTEGER NOT NULL,
  tip        INTEGER NOT NULL,
  tip_hash   BLOB NOT NULL,
  label      TEXT,
  cleared    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  CHECK (CASE WHEN parent IS NULL THEN base = 0 ELSE base = (parent & 4294967295) + 1 END)
) STRICT;
CREATE INDEX branches_thread ON branches (thread, key);
CREATE INDEX branches_parent ON branches (parent) WHERE parent IS NOT NULL;

CREATE TABLE items (
  key        INTEGER NOT NULL PRIMARY KEY,
  id         BLOB NOT NULL UNIQUE,
  turn       INTEGER,
  kind       TEXT NOT NULL,
  role       TEXT,
  format     TEXT NOT NULL,
  writer     INTEGER NOT NULL REFERENCES writers (key),
  epoch      INTEGER NOT NULL,
  tick       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  source_id  TEXT,
  sources    BLOB,
  chain      INTEGER NOT NULL,
  salt       BLOB,
  digest     BLOB NOT NULL,
  hash       BLOB NOT NULL,
  size       INTEGER NOT NULL,
  encoding   INTEGER NOT NULL,
  content    BLOB
) STRICT;
CREATE INDEX items_source_id ON items (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX items_compaction ON items (key) WHERE kind = 'compaction';

-- Every item has a parent that exists, or is a root: the item before it on its branch,
-- or the first item of a branch whose own parent is a foreign key.
CREATE TRIGGER items_have_parents BEFORE INSERT ON items
WHEN NOT EXISTS (SELECT 1 FROM items WHERE key = NEW.key - 1 AND NEW.key & 4294967295 > 0)
 AND NOT EXISTS (SELECT 1 FROM branches WHERE key = NEW.key >> 32 AND base = NEW.key & 4294967295)
BEGIN
  SELECT RAISE(ABORT, 'an item needs a parent');
END;

CREATE TRIGGER items_keep_parents BEFORE DELETE ON items
WHEN EXISTS (SELECT 1 FROM items WHERE key = OLD.key + 1)
BEGIN
  SELECT RAISE(ABORT, 'an item with a successor stays');
END;

-- Only content, and what says how it is stored, can ever change: by redaction.
CREATE TRIGGER items_are_append_only BEFORE UPDATE OF
  key, id, turn, kind, role, format, writer, epoch, tick, created_at, source_id, sources, chain, digest, hash
ON items
BEGIN
  SELECT RAISE(ABORT, 'items are append-only');
END;

CREATE TRIGGER branches_keep_their_place BEFORE UPDATE OF key, thread, id, parent, base ON branches
BEGIN
  SELECT RAISE(ABORT, 'a branch stays where it begins');
END;

CREATE TRIGGER branches_keep_items BEFORE DELETE ON branches
WHEN EXISTS (SELECT 1 FROM items WHERE key BETWEEN OLD.key << 32 AND (OLD.key << 32) + 4294967295)
BEGIN
  SELECT RAISE(ABORT, 'a branch with items stays');
END;

CREATE TABLE blobs (
  digest   BLOB NOT NULL PRIMARY KEY,
  size     INTEGER NOT NULL,
  encoding INTEGER NOT NULL,
  data     BLOB NOT NULL
) STRICT;

CREATE TABLE item_blobs (
  item   INTEGER NOT NULL REFERENCES items (key),
  digest BLOB NOT NULL REFERENCES blobs (digest),
  PRIMARY KEY (item, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_blobs_digest ON item_blobs (digest);

CREATE TABLE turns (
  thread      TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  ordinal     INTEGER NOT NULL,
  status      TEXT NOT NULL,
  outcome     TEXT,
  first_item  INTEGER NOT NULL,
  last_item   INTEGER,
  token_usage TEXT,
  started_at  INTEGER NOT NULL,
  ended_at    INTEGER,
  PRIMARY KEY (thread, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE claims (
  thread       TEXT NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
  epoch        INTEGER NOT NULL,
  holder       TEXT NOT NULL,
  machine      TEXT NOT NULL,
  hostname     TEXT NOT NULL,
  pid          INTEGER NOT NULL,
  label        TEXT NOT NULL,
  boot         TEXT NOT NULL,
  namespace    TEXT NOT NULL,
  start_ticks  INTEGER NOT NULL,
  acquired_at  INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  wanted_by    TEXT,
  wanted_at    INTEGER
) STRICT;
CREATE INDEX claims_holder ON claims (holder);

CREATE TABLE sources (
  key         INTEGER NOT NULL PRIMARY KEY,
  agent       TEXT NOT NULL,
  path        TEXT NOT NULL UNIQUE,
  thread      TEXT REFERENCES threads (id) ON DELETE SET NULL,
  size        INTEGER NOT NULL,
  mtime       INTEGER NOT NULL,
  consumed    INTEGER NOT NULL,
  prefix      BLOB NOT NULL,
  records     INTEGER NOT NULL,
  skipped     INTEGER NOT NULL,
  state       BLOB NOT NULL,
  imported_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sources_thread ON sources (thread) WHERE thread IS NOT NULL;

-- A file without gaps: each row is a record that became an item, or bytes kept beside the tree.
-- Between two rows stands nothing, or one line feed.
CREATE TABLE segments (
  source   INTEGER NOT NULL REFERENCES sources (key) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  length   INTEGER NOT NULL,
  item     INTEGER,
  note     BLOB,
  bytes    BLOB,
  PRIMARY KEY (source, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX segments_item ON segments (item) WHERE item IS NOT NULL;
