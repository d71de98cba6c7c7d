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

-- The tools of a thread in their order, replaced as a whole.
CREATE TABLE tools (
  thread       TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  position     INTEGER NOT NULL CHECK (position >= 0),
  name         TEXT NOT NULL,
  description  TEXT,
  input_schema TEXT NOT NULL,
  extra        TEXT,
  PRIMARY KEY (thread, position),
  UNIQUE (thread, name)
) STRICT;

-- Runs of workflows. `place` is the order in which they were started; `tick` is one more than that of any run with each change of
-- a run or of what belongs to it.
CREATE TABLE runs (
  id           TEXT NOT NULL PRIMARY KEY,
  workspace    BLOB NOT NULL REFERENCES workspaces (id),
  thread       TEXT REFERENCES threads (id) ON DELETE CASCADE,
  workflow     TEXT NOT NULL,
  goal         TEXT,
  status       TEXT NOT NULL,
  reason       TEXT,
  input_hash   TEXT,
  metadata     TEXT,
  started_at   INTEGER NOT NULL,
  completed_at INTEGER CHECK (completed_at >= started_at),
  place        INTEGER NOT NULL,
  tick         INTEGER NOT NULL,
  CHECK (completed_at IS NULL OR status NOT IN ('pending', 'running', 'paused')),
  CHECK (completed_at IS NOT NULL OR status NOT IN ('completed', 'failed', 'cancelled', 'interrupted'))
) STRICT;
CREATE INDEX runs_place ON runs (place, id);
CREATE INDEX runs_workspace ON runs (workspace, place, id);
CREATE INDEX runs_status ON runs (status, place, id);
CREATE INDEX runs_workflow ON runs (workflow, place, id);
CREATE INDEX runs_thread ON runs (thread, place, id) WHERE thread IS NOT NULL;
CREATE INDEX runs_tick ON runs (tick);

-- What a run does: its branches, its leaves and its control nodes. `name` is the branch's id, the leaf's or the control node's;
-- `about` the branch's node, the leaf's task or the control node's kind; `list` the leaf's artifacts or the control node's chosen
-- children.
CREATE TABLE run_parts (
  id           TEXT NOT NULL PRIMARY KEY,
  run          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  place        INTEGER NOT NULL,
  kind         TEXT NOT NULL CHECK (kind IN ('branch', 'leaf', 'control')),
  branch       TEXT REFERENCES run_parts (id) ON DELETE SET NULL,
  name         TEXT NOT NULL,
  about        TEXT NOT NULL,
  input_hash   TEXT,
  status       TEXT NOT NULL,
  reason       TEXT,
  result       TEXT,
  list         TEXT,
  started_at   INTEGER NOT NULL,
  completed_at INTEGER CHECK (completed_at >= started_at),
  CHECK (kind = 'leaf' OR (branch IS NULL AND input_hash IS NULL)),
  CHECK (kind <> 'branch' OR list IS NULL),
  CHECK (completed_at IS NULL OR status NOT IN ('pending', 'running', 'paused')),
  CHECK (completed_at IS NOT NULL OR status NOT IN ('completed', 'failed', 'cancelled', 'interrupted'))
) STRICT;
CREATE UNIQUE INDEX run_parts_order ON run_parts (run, place);
CREATE INDEX run_parts_kind ON run_parts (run, kind, place);
CREATE INDEX run_parts_branch ON run_parts (branch, place) WHERE branch IS NOT NULL;
CREATE INDEX run_parts_replay ON run_parts (name, input_hash, run, place) WHERE kind = 'leaf' AND status = 'completed';

-- What a control node had to choose from. A score is the text of a number; `score_order` is a number that is greater for a greater
-- one, and the least number where there is none.
CREATE TABLE run_candidates (
  id          TEXT NOT NULL PRIMARY KEY,
  run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  control     TEXT NOT NULL REFERENCES run_parts (id) ON DELETE CASCADE,
  branch      TEXT REFERENCES run_parts (id) ON DELETE SET NULL,
  place       INTEGER NOT NULL,
  name        TEXT NOT NULL,
  score       TEXT,
  score_order INTEGER NOT NULL,
  passed      INTEGER CHECK (passed IN (0, 1)),
  rationale   TEXT,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX run_candidates_order ON run_candidates (run, place);
CREATE INDEX run_candidates_control ON run_candidates (control, place);
CREATE INDEX run_candidates_score ON run_candidates (control, score_order DESC, place);
CREATE INDEX run_candidates_branch ON run_candidates (branch) WHERE branch IS NOT NULL;

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
