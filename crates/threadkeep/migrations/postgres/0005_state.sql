-- State beside the log: goals, jobs, checkpoints. Goals and checkpoints hang on their thread, jobs on their workspace.
-- The tick of a goal or a checkpoint is the one that its thread got with the change, so it orders the changes of a thread;
-- the tick of a job is one more than that of any job. The same tables as for SQLite.

-- The revisions of a thread's goal; the one that has not ended is the goal.
CREATE TABLE goals (
  thread         TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  ordinal        BIGINT NOT NULL,
  id             BYTEA NOT NULL,
  objective      TEXT COLLATE "C" NOT NULL,
  status         TEXT COLLATE "C" NOT NULL,
  pause_reason   TEXT COLLATE "C",
  token_budget   BIGINT CHECK (token_budget >= 0),
  seconds_budget BIGINT CHECK (seconds_budget >= 0),
  tokens_used    BIGINT NOT NULL CHECK (tokens_used >= 0),
  seconds_used   BIGINT NOT NULL CHECK (seconds_used >= 0),
  continuations  BIGINT NOT NULL CHECK (continuations >= 0),
  gap            BYTEA,
  gap_repeats    BIGINT,
  gap_pass       BIGINT,
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT NOT NULL,
  ended_at       BIGINT,
  tick           BIGINT NOT NULL,
  PRIMARY KEY (thread, ordinal)
);
CREATE UNIQUE INDEX goals_current ON goals (thread) WHERE ended_at IS NULL;

-- Usage that was accrued under an id: a repeated call counts once.
CREATE TABLE goal_usage (
  thread        TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  id            BYTEA NOT NULL,
  goal          BYTEA NOT NULL,
  tokens        BIGINT NOT NULL,
  seconds       BIGINT NOT NULL,
  continuations BIGINT NOT NULL,
  accrued_at    BIGINT NOT NULL,
  PRIMARY KEY (thread, id)
);

-- A job that runs is held under a lease; no other status has one. Who held it last stays, and under which lease.
CREATE TABLE jobs (
  id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workspace    BYTEA NOT NULL REFERENCES workspaces (id),
  thread       TEXT COLLATE "C" REFERENCES threads (id) ON DELETE CASCADE,
  queue        TEXT COLLATE "C" NOT NULL,
  name         TEXT COLLATE "C" NOT NULL,
  status       TEXT COLLATE "C" NOT NULL,
  priority     BIGINT NOT NULL,
  place        BIGINT NOT NULL,
  due_at       BIGINT NOT NULL,
  attempts     BIGINT NOT NULL CHECK (attempts >= 0),
  max_attempts BIGINT NOT NULL CHECK (max_attempts >= 1),
  backoff      BIGINT NOT NULL CHECK (backoff >= 0),
  progress     BIGINT CHECK (progress BETWEEN 0 AND 100),
  detail       TEXT COLLATE "C",
  payload      TEXT COLLATE "C",
  result       TEXT COLLATE "C",
  error        TEXT COLLATE "C",
  lease        BYTEA,
  last_lease   BYTEA,
  holder       TEXT COLLATE "C",
  machine      TEXT COLLATE "C",
  hostname     TEXT COLLATE "C",
  pid          BIGINT,
  label        TEXT COLLATE "C",
  boot         TEXT COLLATE "C",
  namespace    TEXT COLLATE "C",
  start_ticks  BIGINT,
  claimed_at   BIGINT,
  heartbeat_at BIGINT,
  created_at   BIGINT NOT NULL,
  updated_at   BIGINT NOT NULL,
  ended_at     BIGINT,
  tick         BIGINT NOT NULL,
  CHECK ((status = 'running') = (lease IS NOT NULL)),
  CHECK (lease IS NULL OR (holder IS NOT NULL AND machine IS NOT NULL AND hostname IS NOT NULL AND pid IS NOT NULL
    AND label IS NOT NULL AND boot IS NOT NULL AND namespace IS NOT NULL AND start_ticks IS NOT NULL
    AND claimed_at IS NOT NULL AND heartbeat_at IS NOT NULL))
);
CREATE INDEX jobs_next ON jobs (queue, priority DESC, place, id) WHERE status = 'queued';
CREATE INDEX jobs_workspace_next ON jobs (workspace, queue, priority DESC, place, id) WHERE status = 'queued';
CREATE INDEX jobs_running ON jobs (holder) WHERE status = 'running';
CREATE INDEX jobs_lease ON jobs (lease) WHERE lease IS NOT NULL;
CREATE INDEX jobs_tick ON jobs (tick, id);
CREATE INDEX jobs_workspace_tick ON jobs (workspace, tick, id);
CREATE INDEX jobs_thread ON jobs (thread) WHERE thread IS NOT NULL;

-- The states of a thread's checkpoints, each stored once under the hash of its bytes.
CREATE TABLE checkpoint_states (
  thread   TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  digest   BYTEA NOT NULL,
  size     BIGINT NOT NULL,
  encoding BIGINT NOT NULL,
  data     BYTEA NOT NULL,
  PRIMARY KEY (thread, digest)
);

CREATE TABLE checkpoints (
  thread     TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  name       TEXT COLLATE "C" NOT NULL,
  item       BIGINT REFERENCES items (key),
  digest     BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  tick       BIGINT NOT NULL,
  PRIMARY KEY (thread, name),
  FOREIGN KEY (thread, digest) REFERENCES checkpoint_states (thread, digest)
);
CREATE UNIQUE INDEX checkpoints_order ON checkpoints (thread, tick);
CREATE INDEX checkpoints_state ON checkpoints (thread, digest);
CREATE INDEX checkpoints_item ON checkpoints (item) WHERE item IS NOT NULL;
