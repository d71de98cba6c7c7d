//! A file of odd lines, in a folder and on a server: both give back the file, and both show the same items.
//! `THREADKEEP_DIFFERENTIAL` says how many lines, `THREADKEEP_SEED` which.

use crate::payloads::{Numbers, amount, json, payload, string};
use crate::postgres;
use crate::sandbox::Sandbox;

/// How many lines CI has time for.
const LINES: usize = 400;
const META: &str = r#"{"timestamp":"2026-03-14T09:26:53.040Z","type":"session_meta","payload":{"id":"019ceba1-4c8d-7d02-9b1e-5f2a7c3d8e90","timestamp":"2026-03-14T09:26:53.000Z","cwd":"/home/dev/webshop","originator":"codex_cli_rs","cli_version":"0.104.0","source":"cli"}}"#;

/// A line of a rollout whose texts are odd, or no such line at all.
fn line(numbers: &mut Numbers) -> Vec<u8> {
    match numbers.below(4) {
        0 => payload(numbers),
        1 => format!(r#"{{"timestamp":"2026-03-14T09:26:54.000Z","type":"event_msg","payload":{}}}"#, json(numbers, 0))
            .into_bytes(),
        _ => {
            let role = ["user", "assistant"][numbers.below(2)];
            let kind = if role == "user" { "input_text" } else { "output_text" };
            format!(
                r#"{{"timestamp":"2026-03-14T09:26:54.000Z","type":"response_item","payload":{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":{}}}],"odd":{}}}}}"#,
                string(numbers),
                json(numbers, 2)
            )
            .into_bytes()
        }
    }
}

#[test]
fn a_file_of_odd_lines_comes_back_from_both_engines() {
    let Some(server) = postgres::server() else { return };
    let (lines, seed) = amount(LINES);
    let mut numbers = Numbers(seed ^ 0xf11e);
    let mut file = META.as_bytes().to_vec();
    for _ in 0..lines {
        file.push(b'\n');
        file.extend(line(&mut numbers));
    }
    file.push(b'\n');
    let sandbox = Sandbox::new();
    let folder = sandbox.path("home/.codex/sessions/2026/03/14");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("rollout-2026-03-14T09-26-53-019ceba1-4c8d-7d02-9b1e-5f2a7c3d8e90.jsonl");
    std::fs::write(&path, &file).unwrap();
    let stores = [sandbox.path("store").to_str().unwrap().to_owned(), server.address()];
    let run = |store: &str, arguments: &[&str]| {
        let output = sandbox.bare().args(["--store", store]).args(arguments).output().unwrap();
        assert!(
            [Some(0), Some(8)].contains(&output.status.code()),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let shown = stores.each_ref().map(|store| {
        run(store, &["import", path.to_str().unwrap()]);
        let back = run(store, &["export", "-", "--verbatim"]);
        let differs = back.iter().zip(&file).position(|(left, right)| left != right);
        assert!(back == file, "seed {seed}: {} of {} bytes, from {differs:?} on", back.len(), file.len());
        run(store, &["verify", "--all"]);
        run(store, &["show", "-", "--raw"])
    });
    assert!(shown[0] == shown[1], "seed {seed}: the items differ");
    let items = stores.map(|store| {
        let stats: serde_json::Value = serde_json::from_slice(&run(&store, &["stats", "--json"])).unwrap();
        stats["items"].as_u64().unwrap()
    });
    assert!(items[0] == items[1] && items[0] > lines as u64 / 5, "{items:?} items of {lines} lines");
    eprintln!("seed {seed}: {lines} lines, {} bytes, {} items", file.len(), items[0]);
}
