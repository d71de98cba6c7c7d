//! A store that the server's own tools have dumped and restored.

use std::process::Command;

use postgres::NoTls;
use threadkeep::blocking::Store;
use threadkeep::{AppendOptions, NewItem, NewThread, Role, StoreOptions, Tree};

use crate::payloads::{Numbers, payload};
use crate::server::{Server, find_programs, server};

/// A program that comes with the server or with its clients, ready to connect.
fn client(server: &Server, program: &str) -> Command {
    let beside = find_programs().unwrap().join(program);
    let mut command = if beside.is_file() { Command::new(beside) } else { Command::new(program) };
    command.arg("--host").arg(server.folder()).args(["--username", "threadkeep", "--no-password"]);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_restored_dump_is_the_store_it_was_made_of() {
    let Some(server) = server() else { return };
    let address = server.address();
    let schema = address.rsplit_once("schema=").unwrap().1;
    let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    let home = store.workspace("/w".as_ref()).unwrap();
    let mut numbers = Numbers(7);
    let mut threads = Vec::new();
    for _ in 0..5 {
        let live = home.create_now(NewThread::default()).unwrap();
        let items = (0..20).map(|_| NewItem::raw(threadkeep::Kind::Event, "test", payload(&mut numbers)));
        let appended = live.append_with(items.collect(), AppendOptions::default()).unwrap();
        live.rewind(appended.items[9].address()).unwrap();
        live.append(vec![NewItem::message(Role::User, "another branch")]).unwrap();
        threads.push(live.id().clone());
        threads.push(store.fork(live.id(), None, NewThread::default()).unwrap().id);
        live.shutdown().unwrap();
    }
    let trees = |store: &Store| threads.iter().map(|id| store.tree(id).unwrap()).collect::<Vec<Tree>>();

    let database = format!("restored_{schema}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let option = format!("--schema={schema}");
    run(client(&server, "pg_dump").args([&option, "--format=custom", "--dbname=postgres", "--file"]).arg(file.path()));
    run(client(&server, "createdb").arg(&database));
    run(client(&server, "pg_restore").args(["--exit-on-error", "--dbname", &database]).arg(file.path()));

    let there = address.replace("/postgres?", &format!("/{database}?"));
    let restored = Store::open(StoreOptions::postgres(&there).unwrap()).unwrap();
    assert_eq!(restored.id(), store.id());
    let report = restored.verify_all(|_| {}).unwrap();
    assert_eq!((report.threads, report.intact), (10, 10));
    assert_eq!(trees(&restored), trees(&store), "the ends of all branches have the same hashes");
    let found = Store::examine(StoreOptions::postgres(&there).unwrap(), false).unwrap().findings;
    let ours = found.iter().filter(|it| !["setting", "role-too-strong", "few-connections"].contains(&it.code));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&threadkeep::Finding>::new());

    // The rules came along, and find their tables.
    let mut config = server.config();
    config.dbname(&database).options(&format!("-c search_path={schema}"));
    let mut client = config.connect(NoTls).unwrap();
    client.batch_execute("UPDATE items SET hash = 'x'").unwrap_err();
    client.batch_execute("DELETE FROM items WHERE key & 4294967295 = 0").unwrap_err();
    let live = restored.resume(&threads[0], false).unwrap();
    live.append(vec![NewItem::message(Role::User, "goes on")]).unwrap();
    live.shutdown().unwrap();
    assert!(restored.verify(&threads[0]).unwrap().is_intact());
    assert_ne!(trees(&restored), trees(&store));
}
