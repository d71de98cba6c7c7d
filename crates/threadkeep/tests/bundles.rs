//! Bundles: threads in one file that come out of it as they went in, and nothing else with them.
#![cfg(test)]

#[path = "copy/history.rs"]
mod history;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use history::{History, assert_same, id, memory, named, open, say, ticking};
use threadkeep::blocking::Store;
use threadkeep::{
    Bundle, BundleManifest, BundleOptions, CopyReport, Error, FolderMove, Hash, ItemQuery, NewGoal, NewThread,
    RedactOptions, Result, Rules, StoreOptions, SystemHost, TakeBundle, ThreadId, ThreadPatch,
};

const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

fn options(scratch: &Path) -> BundleOptions {
    BundleOptions { scratch: scratch.to_owned(), mask: None, with_seals: false }
}

fn bundle(store: &Store, threads: &[ThreadId], options: &BundleOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let report = store.write_bundle(threads, options, &mut bytes, &mut |_| {}).unwrap();
    assert_eq!(report.bytes, bytes.len() as u64);
    assert!(std::fs::read_dir(&options.scratch).unwrap().next().is_none(), "something was left in the scratch folder");
    bytes
}

fn unfold(bytes: &[u8], scratch: &Path) -> Result<Bundle> {
    Store::open_bundle(&mut &*bytes, scratch, Arc::new(SystemHost))
}

fn take(store: &Store, bytes: &[u8], scratch: &Path) -> CopyReport {
    let bundle = unfold(bytes, scratch).unwrap();
    store.take_bundle(&bundle, TakeBundle::default(), &mut |_| {}).unwrap()
}

fn thread(store: &Store, name: &str, texts: &[&str]) -> ThreadId {
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named(name)).unwrap();
    live.append(texts.iter().map(|text| say(text)).collect()).unwrap();
    live.shutdown().unwrap();
    id(name)
}

fn texts(store: &Store, thread: &ThreadId) -> Vec<String> {
    let page = store.items(thread, ItemQuery::default()).unwrap();
    page.entries.iter().map(|item| String::from_utf8_lossy(&item.content).into_owned()).collect()
}

/// The store that a bundle holds, as its bytes.
fn database(bytes: &[u8]) -> (BundleManifest, Vec<u8>) {
    let magic = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let end = magic + bytes[magic..].iter().position(|byte| *byte == b'\n').unwrap();
    let mut database = Vec::new();
    zstd::Decoder::new(&bytes[end + 1..]).unwrap().read_to_end(&mut database).unwrap();
    (serde_json::from_slice(&bytes[magic..end]).unwrap(), database)
}

/// Packs a store again, so that nothing but what it holds is wrong with it.
fn pack(mut manifest: BundleManifest, database: &[u8]) -> Vec<u8> {
    manifest.bytes = database.len() as u64;
    manifest.digest = Hash::of(database);
    let mut bytes =
        format!("{}\n{}\n", threadkeep::BUNDLE_MAGIC, serde_json::to_string(&manifest).unwrap()).into_bytes();
    bytes.extend(zstd::encode_all(database, 3).unwrap());
    bytes
}

/// The bundle after somebody ran these statements in it.
fn altered(bytes: &[u8], sql: &str, scratch: &Path) -> Vec<u8> {
    let (manifest, database) = database(bytes);
    let file = scratch.join("altered.db");
    std::fs::write(&file, database).unwrap();
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    let database = std::fs::read(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    pack(manifest, &database)
}

fn contains(bytes: &[u8], sought: &str) -> bool {
    bytes.windows(sought.len()).any(|window| window == sought.as_bytes())
}

#[test]
fn random_histories_come_out_of_a_bundle_as_they_went_in() {
    let scratch = tempfile::tempdir().unwrap();
    for seed in 500..512 {
        let mut history = History::new(ticking(), seed);
        for _ in 0..60 {
            history.step();
        }
        let source = &history.store;
        let outside: Vec<ThreadId> = history::threads(source)
            .into_iter()
            .filter(|thread| thread.trashed_at.is_none())
            .map(|thread| thread.id)
            .collect();
        if outside.is_empty() {
            continue;
        }
        let target = memory();
        let bytes = bundle(source, &outside, &options(scratch.path()));
        let report = take(&target, &bytes, scratch.path());
        assert_eq!((report.problems.len(), report.new), (0, outside.len() as u64), "seed {seed}: {report:?}");
        for thread in &outside {
            assert_eq!(texts(&target, thread), texts(source, thread), "seed {seed}: {thread}");
            assert_eq!(target.verify(thread).unwrap().broken, 0, "seed {seed}: {thread}");
        }
        let again = take(&target, &bytes, scratch.path());
        assert_eq!((again.unchanged, again.items), (outside.len() as u64, 0), "seed {seed}: {again:?}");
    }
}

#[test]
fn everything_that_hangs_on_a_thread_comes_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, target) = (memory(), memory());
    let large = "payload ".repeat(200_000);
    let thread = thread(&source, "whole", &["first", &large]);
    source.set_goal(&thread, NewGoal::new("ship it")).unwrap();
    source
        .update(&thread, ThreadPatch { title: threadkeep::Change::Set("A title".to_owned()), ..ThreadPatch::default() })
        .unwrap();
    let bytes = bundle(&source, std::slice::from_ref(&thread), &options(scratch.path()));
    let report = take(&target, &bytes, scratch.path());
    assert_eq!((report.new, report.equal), (1, 1));
    assert_same(&source, &target, "the whole thread");
    assert_eq!(target.goal(&thread).unwrap().unwrap().objective, "ship it");
    assert_eq!(unfold(&bytes, scratch.path()).unwrap().manifest().threads[0].title.as_deref(), Some("A title"));
}

#[test]
fn of_what_a_thread_was_forked_from_nothing_comes_that_it_does_not_share() {
    let scratch = tempfile::tempdir().unwrap();
    for purged in [false, true] {
        let source = memory();
        let parent = thread(&source, "parent", &["shared", "between", "only the parent"]);
        let at = |depth| Some(source.address_at(&parent, depth).unwrap());
        let early = source.fork(&parent, at(0), NewThread { id: Some(id("early")), ..NewThread::default() }).unwrap();
        source.fork(&parent, at(1), NewThread { id: Some(id("late")), ..NewThread::default() }).unwrap();
        if purged {
            source.delete(&parent).unwrap();
            source.purge(&parent).unwrap();
        }
        let bytes = bundle(&source, std::slice::from_ref(&early.id), &options(scratch.path()));
        let (_, database) = database(&bytes);
        assert!(!contains(&database, "only the parent") && !contains(&database, "between"), "purged: {purged}");
        let target = memory();
        take(&target, &bytes, scratch.path());
        assert_eq!(texts(&target, &early.id), texts(&source, &early.id));
        assert!(matches!(target.get(&parent), Err(Error::NotFound { .. })), "purged: {purged}");
        // And where the parent comes later, it comes whole.
        if !purged {
            take(&target, &bundle(&source, std::slice::from_ref(&parent), &options(scratch.path())), scratch.path());
            assert_eq!(texts(&target, &parent), texts(&source, &parent));
        }
    }
}

#[test]
fn a_masked_bundle_holds_no_secret_verifies_and_replaces_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let source = memory();
    let said = format!("the key is {SECRET}, as you know");
    let thread = thread(&source, "secret", &["before", &said]);
    let masking = BundleOptions { mask: Some(Rules::pattern(SECRET).unwrap()), ..options(scratch.path()) };
    let bytes = bundle(&source, std::slice::from_ref(&thread), &masking);
    let opened = unfold(&bytes, scratch.path()).unwrap();
    assert!(opened.manifest().masked);
    assert!(!contains(&database(&bytes).1, SECRET));
    let target = memory();
    target.take_bundle(&opened, TakeBundle::default(), &mut |_| {}).unwrap();
    assert_eq!(target.verify(&thread).unwrap().broken, 0);
    assert!(texts(&target, &thread).iter().all(|text| !text.contains(SECRET)));
    // Back where it came from, and where it went on since.
    assert_eq!(source.take_bundle(&opened, TakeBundle::default(), &mut |_| {}).unwrap().unchanged, 1);
    assert!(texts(&source, &thread)[1].contains(SECRET));
    let live = source.resume(&thread, false).unwrap();
    live.append(vec![say("after")]).unwrap();
    live.shutdown().unwrap();
    drop(opened);
    let later = bundle(&source, std::slice::from_ref(&thread), &masking);
    assert_eq!(take(&target, &later, scratch.path()).problems.len(), 1);
    assert_eq!(texts(&target, &thread).len(), 2);
}

#[test]
fn no_bundle_takes_content_away() {
    let (temp, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (here, there) = (memory(), open(temp.path()));
    let thread = thread(&here, "kept", &["keep me", "and me"]);
    there.copy_from(&here, &mut |_| {}).unwrap();
    let address = there.address_at(&thread, 0).unwrap();
    let why = RedactOptions { reason: "somebody else's wish".to_owned(), ..RedactOptions::default() };
    there.redact(&thread, vec![address], why).unwrap();
    let bytes = bundle(&there, std::slice::from_ref(&thread), &options(scratch.path()));
    take(&here, &bytes, scratch.path());
    assert!(texts(&here, &thread)[0].contains("keep me"));
}

#[test]
fn what_is_damaged_or_cut_is_refused_wherever_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let source = memory();
    let thread = thread(&source, "fragile", &["one", "two", "three"]);
    let bytes = bundle(&source, &[thread], &options(scratch.path()));
    for step in 0..60 {
        let at = step * bytes.len() / 60;
        let cut = unfold(&bytes[..at], scratch.path()).unwrap_err();
        assert!(matches!(cut, Error::Corrupt { .. } | Error::Invalid { .. }), "cut at {at}: {cut:?}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        // In what it says of itself a letter may change and nothing be damaged; no chain and no digest may.
        if let Err(error) = unfold(&flipped, scratch.path()) {
            let told = matches!(error, Error::Corrupt { .. } | Error::Invalid { .. } | Error::Unsupported { .. });
            assert!(told, "flipped at {at}: {error:?}");
        } else {
            assert!(at < bytes.len() / 4, "flipped at {at}, and nobody saw it");
        }
    }
    assert!(std::fs::read_dir(scratch.path()).unwrap().next().is_none(), "a refused bundle left something");
}

#[test]
fn what_a_bundle_says_of_itself_is_not_believed() {
    let scratch = tempfile::tempdir().unwrap();
    let source = memory();
    let thread = thread(&source, "hostile", &["one"]);
    let bytes = bundle(&source, std::slice::from_ref(&thread), &options(scratch.path()));
    let refused = |bytes: &[u8]| unfold(bytes, scratch.path()).unwrap_err().to_string();
    let (manifest, whole) = database(&bytes);

    let trigger = "CREATE TRIGGER theirs AFTER INSERT ON threads BEGIN UPDATE threads SET title = 'x'; END";
    assert!(refused(&altered(&bytes, trigger, scratch.path())).contains("theirs"));
    let chain = "UPDATE threads SET head_hash = zeroblob(32)";
    assert!(matches!(unfold(&altered(&bytes, chain, scratch.path()), scratch.path()), Err(Error::Corrupt { .. })));
    let absent = BundleManifest {
        threads: vec![threadkeep::BundledThread { id: id("another"), ..manifest.threads[0].clone() }],
        ..manifest.clone()
    };
    assert!(refused(&pack(absent, &whole)).contains("another"));
    assert!(matches!(
        unfold(&bytes_of_version(&bytes, "threadkeep-bundle 2"), scratch.path()),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(unfold(b"{\"type\":\"session\"}\n", scratch.path()), Err(Error::Invalid { .. })));

    // Ten gigabytes of nothing take a few hundred kilobytes; none of it is to reach the disk.
    let mut bomb = format!("{}\n", threadkeep::BUNDLE_MAGIC).into_bytes();
    let claim = BundleManifest { bytes: 10 << 30, ..manifest };
    bomb.extend(format!("{}\n", serde_json::to_string(&claim).unwrap()).into_bytes());
    let mut nothing = std::io::repeat(0).take(1 << 30);
    let mut encoder = zstd::Encoder::new(&mut bomb, 1).unwrap();
    std::io::copy(&mut nothing, &mut encoder).unwrap();
    encoder.finish().unwrap();
    assert!(refused(&bomb).contains("unfolds to more than"));
}

fn bytes_of_version(bytes: &[u8], magic: &str) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    [magic.as_bytes(), &bytes[end..]].concat()
}

#[test]
fn seals_prove_that_nothing_was_cut_from_a_bundle() {
    let (temp, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = Store::open(StoreOptions::folder(temp.path())).unwrap();
    let thread = thread(&source, "sealed", &["one", "two", "three"]);
    let key = source.create_key().unwrap();
    source.seal(None, false).unwrap();
    let sealing = BundleOptions { with_seals: true, ..options(scratch.path()) };
    let bytes = bundle(&source, std::slice::from_ref(&thread), &sealing);
    assert_eq!(unfold(&bytes, scratch.path()).unwrap().sealed_by(), std::slice::from_ref(&key.info.id));

    // A copy without its last item has a chain that verifies; the seal says that it went further.
    let shorter = memory();
    let live = shorter.workspace(Path::new("/w")).unwrap().create_now(named("sealed")).unwrap();
    let first = source.items(&thread, ItemQuery { limit: 2, ..ItemQuery::default() }).unwrap().entries;
    live.append(first.iter().map(say_again).collect()).unwrap();
    live.shutdown().unwrap();
    let (manifest, _) = database(&bytes);
    let (_, cut) = database(&bundle(&shorter, &[thread], &options(scratch.path())));
    let refused = unfold(&pack(manifest, &cut), scratch.path()).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { detail, .. } if detail.contains("seal")), "{refused:?}");
}

fn say_again(item: &threadkeep::Item) -> threadkeep::NewItem {
    threadkeep::NewItem {
        role: item.role.clone(),
        created_at: Some(item.created_at),
        ..threadkeep::NewItem::raw(item.kind.clone(), item.format.clone(), item.content.clone())
    }
    .with_id(item.id)
}

#[test]
fn folders_of_another_machine_are_those_of_this_one() {
    let (temp, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, target) = (memory(), memory());
    let project: PathBuf = temp.path().canonicalize().unwrap().join("webshop");
    std::fs::create_dir(&project).unwrap();
    let live = source.workspace(Path::new("/srv/ann/proj/webshop")).unwrap().create_now(named("moved")).unwrap();
    live.append(vec![say("hello")]).unwrap();
    live.shutdown().unwrap();
    let cwd =
        ThreadPatch { cwd: threadkeep::Change::Set("/srv/ann/proj/webshop/api".to_owned()), ..ThreadPatch::default() };
    source.update(&id("moved"), cwd).unwrap();
    let bytes = bundle(&source, &[id("moved")], &options(scratch.path()));
    let bundle = unfold(&bytes, scratch.path()).unwrap();
    let here = project.parent().unwrap().display().to_string();
    let moves = vec![FolderMove { from: "/srv/ann/proj/".to_owned(), to: here }];
    let what = TakeBundle { moves, ..TakeBundle::default() };
    target.take_bundle(&bundle, what.clone(), &mut |_| {}).unwrap();
    let moved = target.get(&id("moved")).unwrap();
    assert_eq!(moved.details.cwd, Some(project.join("api").display().to_string()));
    assert_eq!(moved.workspace, target.workspace(&project).unwrap().info().id);
    assert_eq!(target.take_bundle(&bundle, what, &mut |_| {}).unwrap().unchanged, 1);
}

#[test]
fn a_folder_moves_with_what_lies_in_it_and_with_nothing_beside_it() {
    let cases = [
        ("/srv/ann", "/data/ann", "/srv/ann/x", Some("/data/ann/x")),
        ("/srv/ann/", "/data/ann", "/srv/ann", Some("/data/ann")),
        ("/srv/ann", "/data/ann", "/srv/anna/x", None),
        (r"C:\work\ann", "/srv/ann", r"C:\work\ann\proj\x", Some("/srv/ann/proj/x")),
        ("/srv/ann", r"D:\ann", "/srv/ann/x", Some(r"D:\ann/x")),
    ];
    for (from, to, path, moved) in cases {
        let one = FolderMove { from: from.to_owned(), to: to.to_owned() };
        assert_eq!(one.moved(path).as_deref(), moved, "{path}");
    }
}

#[test]
fn what_can_not_be_bundled_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let source = memory();
    let thread = thread(&source, "gone", &["one"]);
    source.delete(&thread).unwrap();
    let write =
        |threads: &[ThreadId]| source.write_bundle(threads, &options(scratch.path()), &mut Vec::new(), &mut |_| {});
    assert!(matches!(write(&[thread]), Err(Error::NotFound { .. })));
    assert!(matches!(write(&[id("never")]), Err(Error::NotFound { .. })));
    assert!(matches!(write(&[]), Err(Error::Invalid { .. })));
}
