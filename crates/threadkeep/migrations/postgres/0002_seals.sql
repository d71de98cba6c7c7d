-- Seals: signed statements of where threads stand. Purges on record. What a verification has seen.
-- The same tables as for SQLite.

CREATE TABLE seals (
  number     BIGINT NOT NULL PRIMARY KEY,
  prev       BYTEA NOT NULL,
  hash       BYTEA NOT NULL UNIQUE,
  sealed_at  BIGINT NOT NULL,
  public_key BYTEA NOT NULL,
  heads      BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  purges     BIGINT NOT NULL,
  purge_hash BYTEA NOT NULL,
  signature  BYTEA NOT NULL
);

-- What a seal states: at that time the branch held an item with this hash at this depth.
-- An empty branch states the thread alone, which had no item.
CREATE TABLE seal_heads (
  seal   BIGINT NOT NULL REFERENCES seals (number),
  thread TEXT COLLATE "C" NOT NULL,
  branch BYTEA NOT NULL,
  depth  BIGINT NOT NULL,
  hash   BYTEA NOT NULL,
  tick   BIGINT NOT NULL,
  epoch  BIGINT NOT NULL,
  PRIMARY KEY (seal, thread, branch)
);
CREATE INDEX seal_heads_thread ON seal_heads (thread, seal);

-- Every purge, in a chain of its own; the next seal signs for it.
CREATE TABLE purges (
  number    BIGINT NOT NULL PRIMARY KEY,
  prev      BYTEA NOT NULL,
  hash      BYTEA NOT NULL UNIQUE,
  thread    TEXT COLLATE "C" NOT NULL,
  epoch     BIGINT NOT NULL,
  purged_at BIGINT NOT NULL
);
CREATE INDEX purges_thread ON purges (thread);

-- How far each branch was found in order, for a verification that looks at what is new.
CREATE TABLE verified (
  branch      BIGINT NOT NULL PRIMARY KEY REFERENCES branches (key) ON DELETE CASCADE,
  depth       BIGINT NOT NULL,
  hash        BYTEA NOT NULL,
  verified_at BIGINT NOT NULL
);
