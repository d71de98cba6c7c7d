-- State beside the log: goals, jobs, checkpoints. Goals and checkpoints hang on their thread, jobs on their workspace.
-- The tick of a goal or a checkpoint is the one that its thread got with the change, so it orders the changes of a thread;
-- the tick of a job is one more than that of any job.

-- The revisions of a thread's goal; the one that has not ended is the goal.
CREATE TABLE goals (
  thread         TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  ordinal        INTEGER NOT NULL,
  id             BLOB NOT NULL,
  objective      TEXT NOT NULL,
  status         TEXT NOT NULL,
  pause_reason   TEXT,
  token_budget   INTEGER CHECK (token_budget >= 0),
  seconds_budget INTEGER CHECK (seconds_budget >= 0),
  tokens_used    INTEGER NOT NULL CHECK (tokens_used >= 0),
  seconds_used   INTEGER NOT NULL CHECK (seconds_used >= 0),
  continuations  INTEGER NOT NULL CHECK (continuations >= 0),
  gap            BLOB,
  gap_repeats    INTEGER,
  gap_pass       INTEGER,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  ended_at       INTEGER,
  tick           INTEGER NOT NULL,
  PRIMARY KEY (thread, ordinal)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX goals_current ON goals (thread) WHERE ended_at IS NULL;

-- Usage that was accrued under an id: a repeated call counts once.
CREATE TABLE goal_usage (
  thread        TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  id            BLOB NOT NULL,
  goal          BLOB NOT NULL,
  tokens        INTEGER NOT NULL,
  seconds       INTEGER NOT NULL,
  continuations INTEGER NOT NULL,
  accrued_at    INTEGER NOT NULL,
  PRIMARY KEY (thread, id)
) STRICT, WITHOUT ROWID;

-- A job that runs is held under a lease; no other status has one. Who held it last stays, and under which lease.
CREATE TABLE jobs (
  id           TEXT NOT NULL PRIMARY KEY,
  workspace    BLOB NOT NULL REFERENCES workspaces (id),
  thread       TEXT REFERENCES threads (id) ON DELETE CASCADE,
  queue        TEXT NOT NULL,
  name         TEXT NOT NULL,
  status       TEXT NOT NULL,
  priority     INTEGER NOT NULL,
  place        INTEGER NOT NULL,
  due_at       INTEGER NOT NULL,
  attempts     INTEGER NOT NULL CHECK (attempts >= 0),
  max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
  backoff      INTEGER NOT NULL CHECK (backoff >= 0),
  progress     INTEGER CHECK (progress BETWEEN 0 AND 100),
  detail       TEXT,
  payload      TEXT,
  result       TEXT,
  error        TEXT,
  lease        BLOB,
  last_lease   BLOB,
  holder       TEXT,
  machine      TEXT,
  hostname     TEXT,
  pid          INTEGER,
  label        TEXT,
  boot         TEXT,
  namespace    TEXT,
  start_ticks  INTEGER,
  claimed_at   INTEGER,
  heartbeat_at INTEGER,
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  ended_at     INTEGER,
  tick         INTEGER NOT NULL,
  CHECK ((status = 'running') = (lease IS NOT NULL)),
  CHECK (lease IS NULL OR (holder IS NOT NULL AND machine IS NOT NULL AND hostname IS NOT NULL AND pid IS NOT NULL
    AND label IS NOT NULL AND boot IS NOT NULL AND namespace IS NOT NULL AND start_ticks IS NOT NULL
    AND claimed_at IS NOT NULL AND heartbeat_at IS NOT NULL))
) STRICT;
CREATE INDEX jobs_next ON jobs (queue, priority DESC, place, id) WHERE status = 'queued';
CREATE INDEX jobs_workspace_next ON jobs (workspace, queue, priority DESC, place, id) WHERE status = 'queued';
CREATE INDEX jobs_running ON jobs (holder) WHERE status = 'running';
CREATE INDEX jobs_lease ON jobs (lease) WHERE lease IS NOT NULL;
CREATE INDEX jobs_tick ON jobs (tick, id);
CREATE INDEX jobs_workspace_tick ON jobs (workspace, tick, id);
CREATE INDEX jobs_thread ON jobs (thread) WHERE thread IS NOT NULL;

-- The states of a thread's checkpoints, each stored once under the hash of its bytes.
CREATE TABLE checkpoint_states (
  thread   TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  digest   BLOB NOT NULL,
  size     INTEGER NOT NULL,
  encoding INTEGER NOT NULL,
  data     BLOB NOT NULL,
  PRIMARY KEY (thread, digest)
) STRICT;

CREATE TABLE checkpoints (
  thread     TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  name       TEXT NOT NULL,
  item       INTEGER REFERENCES items (key),
  digest     BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  tick       INTEGER NOT NULL,
  PRIMARY KEY (thread, name),
  FOREIGN KEY (thread, digest) REFERENCES checkpoint_states (thread, digest)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX checkpoints_order ON checkpoints (thread, tick);
CREATE INDEX checkpoints_state ON checkpoints (thread, digest);
CREATE INDEX checkpoints_item ON checkpoints (item) WHERE item IS NOT NULL;
