//! Documents and roadmaps on a server: carried there and back, and gone from its tables when they are masked.

use std::path::{Path, PathBuf};

use postgres::NoTls;
use threadkeep::blocking::Store;
use threadkeep::{
    CopyReport, DocumentQuery, NewDocument, NewRoadmap, NewThread, RedactOptions, RoadmapId, Rules, StoreOptions,
    ThreadId,
};

use crate::redaction::holding;
use crate::server::server;

const SECRET: &str = "wR8nK3cB6jL1hF5sD0gAqWzErTyUiOpMnBvCkY7pQ2vX9mZ4t";

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// How the documents, the roadmap and the link of the thread read.
fn reads(store: &Store) -> String {
    let mut out = String::new();
    for current in store.documents(&thread(), DocumentQuery::default()).unwrap().entries {
        for info in store.document_history(&thread(), &current.name, DocumentQuery::default()).unwrap().entries {
            let text = store.document(&thread(), &info.name, Some(info.version)).unwrap().map(|found| found.text);
            out += &format!("{info:?} {text:?}\n");
        }
    }
    let roadmap = store.roadmap(&RoadmapId::new("way").unwrap()).unwrap().unwrap();
    let link = store.roadmap_link(&thread()).unwrap().map(|link| (link.roadmap, link.node, link.tick));
    out + &format!("{} {:?} {link:?}", roadmap.info.version, roadmap.text)
}

fn copy(from: &Store, to: &Store) -> CopyReport {
    let report = to.copy_from(from, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    report
}

#[test]
fn documents_and_roadmaps_go_to_a_server_and_back_and_leave_its_tables_when_they_are_masked() {
    let Some(server) = server() else { return };
    let here = Store::open(StoreOptions::memory()).unwrap();
    let place = here.workspace(Path::new("/w")).unwrap();
    let live = place.create_now(NewThread { id: Some(thread()), ..NewThread::default() }).unwrap();
    for number in 0..30 {
        live.put_document(NewDocument::new("notes", format!("[{number},\"{SECRET}\"]"))).unwrap();
    }
    live.put_document(NewDocument::new("gone", "1")).unwrap();
    live.delete_document("gone", None).unwrap();
    live.put_document(NewDocument::new("gone", "2")).unwrap();
    live.put_document(NewDocument::new(format!("of {SECRET}"), "1")).unwrap();
    let way = RoadmapId::new("way").unwrap();
    let tree = format!("goal = \"{SECRET}\"\n[[subtask]]\nid = \"a\"\ninstruction = \"x\"\n");
    place.create_roadmap(NewRoadmap::new(way.clone(), tree)).unwrap();
    live.link_roadmap(&way, Some("a".into())).unwrap();
    live.shutdown().unwrap();

    let there = Store::open(StoreOptions::postgres(&server.address()).unwrap()).unwrap();
    assert_eq!(copy(&here, &there).roadmaps, 1);
    assert_eq!(reads(&there), reads(&here));
    let back = Store::open(StoreOptions::memory()).unwrap();
    copy(&there, &back);
    assert_eq!(reads(&back), reads(&here));
    here.trim_document(&thread(), "notes", 2).unwrap();
    copy(&here, &there);
    assert_eq!(reads(&there), reads(&here));

    assert!(!holding(&server, SECRET).is_empty(), "the control");
    server.config().connect(NoTls).unwrap().batch_execute("ANALYZE").unwrap();
    let grounds = RedactOptions { reason: "it was pasted".into(), ..RedactOptions::default() };
    let rules = Rules::literal(SECRET).unwrap();
    let report = there.redact_matching(None, rules, grounds, true, |_, _| {}).unwrap();
    assert_eq!((report.roadmaps, report.erased), (1, Some(true)), "{report:?}");
    assert_eq!(holding(&server, SECRET), Vec::<PathBuf>::new());
    assert!(!reads(&there).contains(SECRET));
    copy(&here, &there);
    assert!(!reads(&there).contains(SECRET), "a copy brought back what was masked");
}
