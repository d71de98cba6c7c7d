//! What small files beside sessions say: read once, taken late, and never over what was given in the store.

use std::fs;
use std::path::Path;

use threadkeep::ThreadPatch;
use threadkeep_agents::codec::{Codec as _, ThreadFacts};
use threadkeep_agents::codewhale::CodeWhale;

use super::{import, open, threads};

#[test]
fn a_title_beside_a_session_may_come_late_and_change_until_one_is_given_here() {
    let (folder, store) = open();
    let session = folder.path().join("wd_x_0123456789ab/session_f38192a3-1111-4222-8333-444455556666");
    let wire = session.join("agents/main/wire.jsonl");
    fs::create_dir_all(wire.parent().unwrap()).unwrap();
    let mut lines = "{\"type\":\"metadata\",\"protocol_version\":\"1.4\",\"created_at\":1785612803000}\n".to_owned();
    let mut title = |named: Option<&str>| {
        if let Some(named) = named {
            let state = serde_json::json!({ "title": named, "workDir": "/home/dev/webshop" });
            fs::write(session.join("state.json"), state.to_string()).unwrap();
        }
        let number = lines.lines().count();
        lines += &format!(
            "{{\"type\":\"context.append_message\",\"message\":{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{number}\"}}]}},\"time\":{}}}\n",
            1_785_612_803_000_u64 + number as u64
        );
        fs::write(&wire, &lines).unwrap();
        let report = import(&store, folder.path());
        assert_eq!(report.problems.len(), 0, "{report:#?}");
        let found = threads(&store);
        assert_eq!(found.len(), 1);
        (found[0].id.clone(), found[0].details.title.clone())
    };
    assert_eq!(title(None).1, None);
    assert_eq!(title(Some("late")).1.as_deref(), Some("late"));
    assert_eq!(title(Some("later")).1.as_deref(), Some("later"));
    let (thread, same) = title(None);
    assert_eq!(same.as_deref(), Some("later"));
    store.update(&thread, ThreadPatch::title("mine")).unwrap();
    assert_eq!(title(Some("too late")).1.as_deref(), Some("mine"));
    assert_eq!(title(None).1.as_deref(), Some("mine"));
}

#[test]
fn what_an_index_says_is_told_of_every_session_without_another_look() {
    let line = |number: u32| format!("{{\"thread_id\":\"t{number}\",\"thread_name\":\"name {number}\"}}\n");
    let index: String = (0..200).map(line).collect();
    let (database, file) = (Path::new("state.db"), Path::new("session_index.jsonl"));
    let aside = CodeWhale.aside(database, file, index.as_bytes()).unwrap();
    drop(index);
    for number in 0..200 {
        let session_id = Some(format!("t{number}"));
        let mut facts = ThreadFacts { session_id, ..ThreadFacts::default() };
        aside.tell(&mut facts);
        assert_eq!(facts.title, Some(format!("name {number}")));
    }
}
