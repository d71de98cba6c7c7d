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

-- == Roadmaps ==
