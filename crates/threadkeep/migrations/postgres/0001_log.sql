-- The log: workspaces, threads, branches, items, blobs; turns, claims, imported files.
-- The same tables as for SQLite, made in the first schema of the search path.
-- An item's key is its branch's number in the upper 31 bits and its depth in the lower 32,
-- so the primary key orders items by (branch, depth) and that pair is unique.
-- No default and no sequence: the statements compute every value, and both engines compute the same.
-- Texts compare by their bytes, as they do in SQLite, whatever the database's own collation is.

CREATE TABLE IF NOT EXISTS schema_migrations (
  number     BIGINT NOT NULL PRIMARY KEY,
  name       TEXT COLLATE "C" NOT NULL,
  checksum   TEXT COLLATE "C" NOT NULL,
  applied_at BIGINT NOT NULL
);

CREATE TABLE counters (
  name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL
);

CREATE TABLE facts (
  name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  value BYTEA NOT NULL
);

CREATE TABLE writers (
  key        BIGINT NOT NULL PRIMARY KEY,
  id         BYTEA NOT NULL UNIQUE,
  machine    TEXT COLLATE "C" NOT NULL UNIQUE,
  created_at BIGINT NOT NULL
);

CREATE TABLE workspaces (
  id         BYTEA NOT NULL PRIMARY KEY,
  name       TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE workspace_keys (
  key       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  kind      TEXT COLLATE "C" NOT NULL,
  workspace BYTEA NOT NULL REFERENCES workspaces (id)
);
CREATE INDEX workspace_keys_workspace ON workspace_keys (workspace);

CREATE TABLE threads (
  id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workspace       BYTEA NOT NULL REFERENCES workspaces (id),
  shelf           BIGINT NOT NULL CHECK (shelf BETWEEN 0 AND 3),
  status          TEXT COLLATE "C" NOT NULL,
  version         BIGINT NOT NULL,
  epoch           BIGINT NOT NULL,
  tick            BIGINT NOT NULL,
  updated         BIGINT NOT NULL,
  activity        BIGINT NOT NULL,
  head            BIGINT,
  head_hash       BYTEA,
  head_is_tip     BIGINT NOT NULL,
  fork_item       BIGINT,
  forked_from     TEXT COLLATE "C",
  items           BIGINT NOT NULL,
  branches        BIGINT NOT NULL,
  turns           BIGINT NOT NULL,
  open_turn       BIGINT,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  archived_at     BIGINT,
  trashed_at      BIGINT,
  ended_at        BIGINT,
  pinned          BIGINT NOT NULL,
  ephemeral       BIGINT NOT NULL,
  policy          TEXT COLLATE "C" NOT NULL,
  title           TEXT COLLATE "C",
  preview         TEXT COLLATE "C",
  agent           TEXT COLLATE "C",
  source          TEXT COLLATE "C",
  provider        TEXT COLLATE "C",
  model           TEXT COLLATE "C",
  cwd             TEXT COLLATE "C",
  working_path    TEXT COLLATE "C",
  rollout_path    TEXT COLLATE "C",
  git_sha         TEXT COLLATE "C",
  git_branch      TEXT COLLATE "C",
  git_origin      TEXT COLLATE "C",
  cli_version     TEXT COLLATE "C",
  sandbox_policy  TEXT COLLATE "C",
  approval_policy TEXT COLLATE "C",
  memory_mode     TEXT COLLATE "C",
  persona         TEXT COLLATE "C",
  parent          TEXT COLLATE "C",
  end_reason      TEXT COLLATE "C",
  token_usage     TEXT COLLATE "C",
  extra           TEXT COLLATE "C" NOT NULL,
  CHECK ((head IS NULL) = (head_hash IS NULL))
);
CREATE INDEX threads_updated ON threads (updated, id);
CREATE INDEX threads_workspace_updated ON threads (workspace, updated, id);
CREATE INDEX threads_activity ON threads (activity, id);
CREATE INDEX threads_workspace_activity ON threads (workspace, activity, id);
CREATE INDEX threads_created ON threads (created_at, id);
CREATE INDEX threads_workspace_created ON threads (workspace, created_at, id);
-- A title is looked up whole and may be longer than an ordered index can hold.
CREATE INDEX threads_title ON threads USING hash (title) WHERE title IS NOT NULL;
CREATE INDEX threads_parent ON threads (parent) WHERE parent IS NOT NULL;
CREATE INDEX threads_forked_from ON threads (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX threads_purging ON threads (id) WHERE shelf = 3 AND status = 'purging';
CREATE INDEX threads_stubs ON threads (id) WHERE shelf = 3;
CREATE INDEX threads_fork_item ON threads (fork_item) WHERE fork_item IS NOT NULL;

CREATE TABLE branches (
  key        BIGINT NOT NULL PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
  thread     TEXT COLLATE "C" NOT NULL REFERENCES threads (id),
  id         BYTEA NOT NULL UNIQUE,
  parent     BIGINT,
  base       BIGINT NOT NULL,
  tip        BIGINT NOT NULL,
  tip_hash   BYTEA NOT NULL,
  label      TEXT COLLATE "C",
  cleared    BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  CHECK (CASE WHEN parent IS NULL THEN base = 0 ELSE base = (parent & 4294967295) + 1 END)
);
CREATE INDEX branches_thread ON branches (thread, key);
CREATE INDEX branches_parent ON branches (parent) WHERE parent IS NOT NULL;

CREATE TABLE items (
  key        BIGINT NOT NULL PRIMARY KEY,
  id         BYTEA NOT NULL UNIQUE,
  turn       BIGINT,
  kind       TEXT COLLATE "C" NOT NULL,
  role       TEXT COLLATE "C",
  format     TEXT COLLATE "C" NOT NULL,
  writer     BIGINT NOT NULL REFERENCES writers (key),
  epoch      BIGINT NOT NULL,
  tick       BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  source_id  TEXT COLLATE "C",
  sources    BYTEA,
  chain      BIGINT NOT NULL,
  salt       BYTEA,
  digest     BYTEA NOT NULL,
  hash       BYTEA NOT NULL,
  size       BIGINT NOT NULL,
  encoding   BIGINT NOT NULL,
  content    BYTEA
);
-- What is large is compressed already.
ALTER TABLE items ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX items_source_id ON items (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX items_compaction ON items (key) WHERE kind = 'compaction';

-- Threads, branches and items refer to each other in a circle, so these two come when all three are there.
ALTER TABLE threads ADD FOREIGN KEY (fork_item) REFERENCES items (key);
ALTER TABLE branches ADD FOREIGN KEY (parent) REFERENCES items (key);

-- The functions below keep the search path that they were made under, so that whoever writes the tables finds the same ones.

-- Every item has a parent that exists, or is a root: the item before it on its branch,
-- or the first item of a branch whose own parent is a foreign key.
-- The row that the item rests on is locked as a foreign key would, or another transaction could delete it meanwhile.
CREATE FUNCTION items_have_parents() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.key & 4294967295 > 0 THEN
    PERFORM 1 FROM items WHERE key = NEW.key - 1 FOR KEY SHARE;
    IF FOUND THEN
      RETURN NEW;
    END IF;
  END IF;
  PERFORM 1 FROM branches WHERE key = NEW.key >> 32 AND base = NEW.key & 4294967295 FOR KEY SHARE;
  IF FOUND THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an item needs a parent';
END;
$$;
CREATE TRIGGER items_have_parents BEFORE INSERT ON items
FOR EACH ROW EXECUTE FUNCTION items_have_parents();

CREATE FUNCTION items_keep_parents() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM items WHERE key = OLD.key + 1) THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an item with a successor stays';
  END IF;
  RETURN OLD;
END;
$$;
CREATE TRIGGER items_keep_parents BEFORE DELETE ON items
FOR EACH ROW EXECUTE FUNCTION items_keep_parents();

-- Only content, and what says how it is stored, can ever change: by redaction.
CREATE FUNCTION items_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'items are append-only';
END;
$$;
CREATE TRIGGER items_are_append_only BEFORE UPDATE OF
  key, id, turn, kind, role, format, writer, epoch, tick, created_at, source_id, sources, chain, digest, hash
ON items
FOR EACH ROW EXECUTE FUNCTION items_are_append_only();

CREATE FUNCTION branches_keep_their_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a branch stays where it begins';
END;
$$;
CREATE TRIGGER branches_keep_their_place BEFORE UPDATE OF key, thread, id, parent, base ON branches
FOR EACH ROW EXECUTE FUNCTION branches_keep_their_place();

CREATE FUNCTION branches_keep_items() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM items WHERE key BETWEEN OLD.key << 32 AND (OLD.key << 32) + 4294967295) THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a branch with items stays';
  END IF;
  RETURN OLD;
END;
$$;
CREATE TRIGGER branches_keep_items BEFORE DELETE ON branches
FOR EACH ROW EXECUTE FUNCTION branches_keep_items();

CREATE TABLE blobs (
  digest   BYTEA NOT NULL PRIMARY KEY,
  size     BIGINT NOT NULL,
  encoding BIGINT NOT NULL,
  data     BYTEA NOT NULL
);
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE item_blobs (
  item   BIGINT NOT NULL REFERENCES items (key),
  digest BYTEA NOT NULL REFERENCES blobs (digest),
  PRIMARY KEY (item, digest)
);
CREATE INDEX item_blobs_digest ON item_blobs (digest);

CREATE TABLE turns (
  thread      TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  ordinal     BIGINT NOT NULL,
  status      TEXT COLLATE "C" NOT NULL,
  outcome     TEXT COLLATE "C",
  first_item  BIGINT NOT NULL,
  last_item   BIGINT,
  token_usage TEXT COLLATE "C",
  started_at  BIGINT NOT NULL,
  ended_at    BIGINT,
  PRIMARY KEY (thread, ordinal)
);

CREATE TABLE claims (
  thread       TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
  epoch        BIGINT NOT NULL,
  holder       TEXT COLLATE "C" NOT NULL,
  machine      TEXT COLLATE "C" NOT NULL,
  hostname     TEXT COLLATE "C" NOT NULL,
  pid          BIGINT NOT NULL,
  label        TEXT COLLATE "C" NOT NULL,
  boot         TEXT COLLATE "C" NOT NULL,
  namespace    TEXT COLLATE "C" NOT NULL,
  start_ticks  BIGINT NOT NULL,
  acquired_at  BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  wanted_by    TEXT COLLATE "C",
  wanted_at    BIGINT
);
CREATE INDEX claims_holder ON claims (holder);

CREATE TABLE sources (
  key         BIGINT NOT NULL PRIMARY KEY,
  agent       TEXT COLLATE "C" NOT NULL,
  path        TEXT COLLATE "C" NOT NULL UNIQUE,
  thread      TEXT COLLATE "C" REFERENCES threads (id) ON DELETE SET NULL,
  size        BIGINT NOT NULL,
  mtime       BIGINT NOT NULL,
  consumed    BIGINT NOT NULL,
  prefix      BYTEA NOT NULL,
  records     BIGINT NOT NULL,
  skipped     BIGINT NOT NULL,
  state       BYTEA NOT NULL,
  imported_at BIGINT NOT NULL
);
CREATE INDEX sources_thread ON sources (thread) WHERE thread IS NOT NULL;

-- A file without gaps: each row is a record that became an item, or bytes kept beside the tree.
-- Between two rows stands nothing, or one line feed.
CREATE TABLE segments (
  source   BIGINT NOT NULL REFERENCES sources (key) ON DELETE CASCADE,
  position BIGINT NOT NULL,
  length   BIGINT NOT NULL,
  item     BIGINT,
  note     BYTEA,
  bytes    BYTEA,
  PRIMARY KEY (source, position)
);
CREATE INDEX segments_item ON segments (item) WHERE item IS NOT NULL;
