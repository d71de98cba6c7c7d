-- More state beside the log: changes, tools, workflow runs, documents, roadmaps.

-- == Changes ==

-- What changed, in the order of the commits. A row outlives what it tells of, so that it can tell that this is gone; the oldest
-- rows are trimmed, and `changes-trimmed` among the counters is the number of the newest one that was.
CREATE TABLE changes (
  number    INTEGER NOT NULL PRIMARY KEY,
  workspace BLOB NOT NULL,
  thread    TEXT,
  area      TEXT NOT NULL,
  verb      TEXT NOT NULL,
  subject   TEXT,
  tick      INTEGER,
  at        INTEGER NOT NULL
) STRICT;
-- One transaction writes at a time, so the numbers are in the order of the commits, and every change that can be read is settled.
CREATE VIEW changes_with_places AS
  SELECT number AS place, number, workspace, thread, area, verb, subject, tick, at FROM changes;
CREATE VIEW changes_settled AS SELECT * FROM changes_with_places;
CREATE VIEW changes_unsettled AS SELECT * FROM changes_with_places WHERE 1 = 0;

-- == Tools and workflow runs ==

-- == Documents ==

-- The versions of a thread's documents: JSON texts, compressed. One without a digest deleted the document. The change is the id
-- of the call that made the version: a repeated call makes no other.
CREATE TABLE document_versions (
  thread     TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  name       TEXT NOT NULL,
  version    INTEGER NOT NULL CHECK (version >= 1),
  kind       TEXT NOT NULL,
  is_current INTEGER NOT NULL CHECK (is_current IN (0, 1)),
  change     BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  tick       INTEGER NOT NULL,
  digest     BLOB,
  size       INTEGER NOT NULL CHECK (size >= 0),
  encoding   INTEGER NOT NULL,
  data       BLOB,
  PRIMARY KEY (thread, name, version),
  CHECK ((digest IS NULL) = (data IS NULL))
) STRICT;
CREATE UNIQUE INDEX document_versions_current ON document_versions (thread, name) WHERE is_current = 1;
CREATE UNIQUE INDEX document_versions_change ON document_versions (thread, change);

-- == Roadmaps ==

-- The trees of a workspace's work, each a TOML text. The change is the id of the call that made the version.
CREATE TABLE roadmaps (
  workspace  BLOB NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
  id         TEXT NOT NULL,
  title      TEXT,
  version    INTEGER NOT NULL CHECK (version >= 1),
  change     BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  tick       INTEGER NOT NULL,
  tree       TEXT NOT NULL,
  PRIMARY KEY (workspace, id)
) STRICT;
CREATE INDEX roadmaps_id ON roadmaps (id);
CREATE INDEX roadmaps_tick ON roadmaps (tick, workspace, id);
CREATE INDEX roadmaps_workspace_tick ON roadmaps (workspace, tick, id);

-- What a thread works on: a roadmap, or a node of it.
CREATE TABLE roadmap_links (
  thread    TEXT NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
  workspace BLOB NOT NULL,
  roadmap   TEXT NOT NULL,
  node      TEXT,
  linked_at INTEGER NOT NULL,
  tick      INTEGER NOT NULL,
  FOREIGN KEY (workspace, roadmap) REFERENCES roadmaps (workspace, id) ON DELETE CASCADE ON UPDATE CASCADE
) STRICT;
CREATE INDEX roadmap_links_roadmap ON roadmap_links (workspace, roadmap, thread);
