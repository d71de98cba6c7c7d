-- Three roles for a store in the schema `threadkeep`, each with no more rights than it needs. Run it once, as an administrator,
-- in the store's database; for a schema of another name, replace `threadkeep` everywhere.
--
-- The owner makes and migrates the schema: open the store once as the owner after each upgrade. Programs that write are given
-- the writer, which can change no table; those that only look, the reader. A role logs in when it is given `LOGIN` and a
-- password, or is granted to one that does.

CREATE ROLE threadkeep_owner NOLOGIN;
CREATE ROLE threadkeep_writer NOLOGIN;
CREATE ROLE threadkeep_reader NOLOGIN;

CREATE SCHEMA threadkeep AUTHORIZATION threadkeep_owner;
REVOKE ALL ON SCHEMA threadkeep FROM PUBLIC;
GRANT USAGE ON SCHEMA threadkeep TO threadkeep_writer, threadkeep_reader;

-- Of what the owner will make.
ALTER DEFAULT PRIVILEGES FOR ROLE threadkeep_owner IN SCHEMA threadkeep
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO threadkeep_writer;
ALTER DEFAULT PRIVILEGES FOR ROLE threadkeep_owner IN SCHEMA threadkeep
  GRANT SELECT ON TABLES TO threadkeep_reader;

-- The writer needs no right to write the list of migrations. It can be taken away once the owner has made it:
--   REVOKE INSERT, UPDATE, DELETE ON threadkeep.schema_migrations FROM threadkeep_writer;
