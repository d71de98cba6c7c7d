//! Bundles: threads in one file, to be carried to another store or given to somebody.
//!
//! A bundle is a line that says what it is, a line of JSON that says what is in it ([`BundleManifest`]), and behind that a store
//! that holds these threads alone, compressed by zstd. Of the threads that they were forked from it holds the items that they
//! share, and nothing else.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::backup::WorkFolder;
use crate::concurrency::block_on;
use crate::copy::{CopyProgress, CopyReport, FolderMove, From, Here, Terms};
use crate::db::replace::{make_folder, new_file};
use crate::db::sqlite::DATABASE;
use crate::db::{Sync, query_one, statements};
use crate::error::{Error, Result};
use crate::finding::Severity;
use crate::host::Host;
use crate::id::{Address, BranchId, ThreadId};
use crate::item::Hash;
use crate::log::purge::{self, Step};
use crate::log::rows::plain::MAX_COUNTED;
use crate::seal::{Anchors, SealedHead, SealedItem};
use crate::secrets::Rules;
use crate::store::{RedactOptions, Store, StoreOptions, on_a_thread};
use crate::thread::Shelf;
use crate::time::Timestamp;

/// The first line of every bundle, of this version of the format.
pub const BUNDLE_MAGIC: &str = "threadkeep-bundle 1";

statements! {
    // All that later numbers are counted on from.
    COUNTED = "SELECT coalesce(max(n), 0), coalesce(min(n), 0) FROM (SELECT version AS n FROM threads UNION ALL SELECT epoch FROM threads
        UNION ALL SELECT tick FROM threads UNION ALL SELECT updated FROM threads UNION ALL SELECT activity FROM threads
        UNION ALL SELECT items FROM threads UNION ALL SELECT tick FROM items UNION ALL SELECT epoch FROM items
        UNION ALL SELECT ordinal FROM turns UNION ALL SELECT tick FROM goals UNION ALL SELECT tick FROM checkpoints
        UNION ALL SELECT tick FROM document_versions UNION ALL SELECT version FROM document_versions
        UNION ALL SELECT tick FROM runs UNION ALL SELECT tick FROM messages UNION ALL SELECT number FROM messages
        UNION ALL SELECT number FROM artifacts UNION ALL SELECT tick FROM roadmap_links) counted";
}

const MAGIC_START: &str = "threadkeep-bundle ";
const LEVEL: i32 = 6;
const PART_BYTES: usize = 1 << 20;
/// A manifest names each thread in a few hundred bytes, and holds the seals that state them.
const MOST_MANIFEST_BYTES: u64 = 256 << 20;
/// How far a bundle may unfold: databases have room to spare in their pages, and nothing honest comes near to this.
const MOST_UNFOLDING: u64 = 256;
const FREE_UNFOLDING: u64 = 64 << 20;
const LABEL: &str = "a bundle";

/// How a bundle is made.
#[derive(Debug, Clone)]
pub struct BundleOptions {
    /// A folder in which there is room for the threads twice; what is put there goes again.
    pub scratch: PathBuf,
    /// Masks what these rules find, in the bundle alone: in all that [`crate::Threads::redact_matching`] looks at. The names of folders,
    /// of workspaces and of imported files are not looked at. The chain of what is masked still verifies.
    pub mask: Option<Rules>,
    /// Also carries the store's seals, which name where *all* of its threads stood. They prove to whoever trusts the key that
    /// nothing was cut from the threads.
    pub with_seals: bool,
}

/// What is in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleManifest {
    /// When it was made.
    pub created_at: Timestamp,
    /// The store that it was made from.
    pub store: Uuid,
    /// Its threads.
    pub threads: Vec<BundledThread>,
    /// Whether content was masked when it was made. Such threads replace nothing where they are taken in.
    pub masked: bool,
    /// The size of the store that it holds.
    pub bytes: u64,
    /// BLAKE3 of that store's bytes.
    pub digest: Hash,
    /// The seals of the store, as anchors are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchors: Option<String>,
}

/// A thread of a bundle, as people know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledThread {
    /// Its id.
    pub id: ThreadId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The agent that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The items of its own branches.
    pub items: u64,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// What making a bundle did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BundleReport {
    /// What is in it.
    pub manifest: BundleManifest,
    /// Items whose content was masked.
    pub masked_items: u64,
    /// The size of what was written.
    pub bytes: u64,
}

/// What of a bundle is taken into a store, and how.
#[derive(Debug, Clone, Default)]
pub struct TakeBundle {
    /// These threads, instead of all.
    pub threads: Option<Vec<ThreadId>>,
    /// Folders that the threads name, and what they are on this machine. A folder that is there makes the threads those of its
    /// workspace.
    pub moves: Vec<FolderMove>,
}

impl Store {
    /// Writes threads as one file, with all that hangs on them: branches, turns, payloads, imported files, and what stands beside the
    /// log. Anybody may write the store meanwhile; each thread is as it was at one moment.
    ///
    /// What others may still act on (waiting messages, pending requests) stays, so that nobody acts on it twice.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a thread that is not there or in the trash; [`Error::Corrupt`] for one that does not verify; errors of
    /// `out` as [`Error::Io`]. What was written until then is no bundle.
    pub async fn write_bundle(
        &self,
        threads: &[ThreadId],
        options: &BundleOptions,
        out: &mut (dyn Write + Send),
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<BundleReport> {
        let listed = self.bundled(threads).await?;
        let ids: Vec<ThreadId> = listed.iter().map(|(id, _)| id.clone()).collect();
        let work = WorkFolder::make(&options.scratch, &*self.inner.host)?;
        let part = Self::open(part_options(&work.folder.join("part"), &self.inner.host)).await?;
        self.fill(&part, listed, progress).await?;
        let masked_items = match &options.mask {
            Some(rules) => mask(&part, rules.clone()).await?,
            None => 0,
        };
        let file = work.folder.join(DATABASE);
        let bytes = part.backup(&file).await?.bytes;
        let mut described = Vec::new();
        for thread in &ids {
            described.push(describe(&part, thread).await?);
        }
        drop(part);
        let anchors = if options.with_seals { Some(self.anchors_as_text().await?) } else { None };
        let manifest = BundleManifest {
            created_at: self.inner.host.now(),
            store: self.id(),
            threads: described,
            masked: options.mask.is_some(),
            bytes,
            digest: digest_of(&file)?,
            anchors,
        };
        let mut out = Counting { out, bytes: 0 };
        write(&manifest, &file, &mut out).map_err(|error| Error::io("write", Path::new("the bundle"), &error))?;
        Ok(BundleReport { manifest, masked_items, bytes: out.bytes })
    }

    /// Takes threads of a bundle into this store, as [`Store::copy_from`] does. A thread that is here as well gains the items that it
    /// lacks; all else of it stays, and so does everything that other threads and workspaces have.
    ///
    /// Of a bundle that was masked only threads come that are not here yet.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a thread that the bundle does not hold; as [`Store::copy_from`].
    pub async fn take_bundle(
        &self,
        bundle: &Bundle,
        what: TakeBundle,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport> {
        let held = &bundle.manifest.threads;
        if let Some(absent) = what.threads.iter().flatten().find(|id| held.iter().all(|thread| thread.id != **id)) {
            return Err(Error::not_found("thread of the bundle", absent));
        }
        let is_wanted = |thread: &&BundledThread| what.threads.as_ref().is_none_or(|ids| ids.contains(&thread.id));
        let listed = held.iter().filter(is_wanted).map(|thread| (thread.id.clone(), thread.items)).collect();
        let here = if bundle.manifest.masked { Here::Stays } else { Here::KeepsContent };
        let terms = Terms { with_everything: false, here, moves: what.moves };
        self.carry(From::Store(&bundle.store), &terms, listed, progress).await
    }

    /// The threads to bundle with the number of their items, each once.
    async fn bundled(&self, threads: &[ThreadId]) -> Result<Vec<(ThreadId, u64)>> {
        if threads.is_empty() {
            return Err(Error::invalid("threads", "a bundle holds one thread at least"));
        }
        let (mut listed, mut seen) = (Vec::new(), HashSet::new());
        for id in threads {
            let thread = self.get(id).await?;
            if thread.shelf == Shelf::Trashed {
                return Err(Error::not_found("thread outside of the trash", id));
            }
            if seen.insert(id) {
                listed.push((id.clone(), u64::try_from(thread.items).unwrap_or(0)));
            }
        }
        Ok(listed)
    }

    /// Fills a store of its own with these threads.
    async fn fill(
        &self,
        part: &Self,
        listed: Vec<(ThreadId, u64)>,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<()> {
        let report = part.carry(From::Store(self), &Terms::default(), listed, progress).await?;
        if let Some(problem) = report.problems.into_iter().next() {
            return Err(Error::corrupt(format!("thread {}", problem.thread), problem.reason));
        }
        // Of what they were forked from everything came; what they do not share is nobody's business.
        part.inner.db.write(Sync::Written, purge::mark_stubs).await?;
        while part.inner.db.write(Sync::Written, purge::step).await? != Step::Nothing {}
        part.erase().await?;
        Ok(())
    }

    async fn anchors_as_text(&self) -> Result<String> {
        let mut text = Vec::new();
        let written = self.anchors().await?.write(&mut text);
        written.map_err(|error| Error::io("write", Path::new("the seals"), &error))?;
        String::from_utf8(text).map_err(|error| Error::Backend { detail: error.to_string() })
    }
}

/// A bundle that was unfolded and found to be whole.
#[derive(Debug)]
pub struct Bundle {
    manifest: BundleManifest,
    sealed: Vec<String>,
    store: Store,
    /// Last, so that the store is closed when its folder goes.
    _work: WorkFolder,
}

impl Bundle {
    /// Unfolds a bundle in a folder in which there is room for it twice, and verifies it: its digest, its schema, every chain, and
    /// what its seals state of its threads. It goes from there when this is dropped.
    ///
    /// One of an older schema is brought forward. Nothing in it is believed: what it may unfold to is bounded by its own size, and a
    /// schema that is not what the migrations make is refused.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is cut, damaged, or not what it says; [`Error::Unsupported`] for a later version of the format,
    /// [`Error::SchemaTooNew`] for a later one of the store; [`Error::Invalid`] for what is no bundle.
    pub async fn open(input: &mut (dyn Read + Send), scratch: &Path, host: Arc<dyn Host>) -> Result<Self> {
        let work = WorkFolder::make(scratch, &*host)?;
        let mut input = BufReader::with_capacity(PART_BYTES, input);
        let manifest = read_manifest(&mut input)?;
        let packed = work.folder.join("packed");
        let database = packed.join(DATABASE);
        make_folder(&packed)?;
        unfold(&manifest, &mut input, &database)?;
        refuse_other_schema(&packed, &host).await?;
        let folder = work.folder.join("store");
        Store::restore_backup(part_options(&folder, &host), &database).await?;
        remove(&packed)?;
        let store = Store::open(part_options(&folder, &host)).await?;
        let mut bundle = Self { manifest, sealed: Vec::new(), store, _work: work };
        bundle.check_threads().await?;
        bundle.check_seals().await?;
        Ok(bundle)
    }

    /// Whether these first bytes of a file are those of a bundle, of whatever version.
    pub fn is_bundle(head: &[u8]) -> bool {
        head.starts_with(MAGIC_START.as_bytes())
    }

    /// What is in it.
    pub fn manifest(&self) -> &BundleManifest {
        &self.manifest
    }

    /// The names of the keys whose seals state threads of this bundle as they are in it. Whether they are to be believed is for whoever
    /// knows the keys.
    pub fn sealed_by(&self) -> &[String] {
        &self.sealed
    }

    /// The threads as a store, to read them without taking them in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    async fn check_threads(&self) -> Result<()> {
        for thread in &self.manifest.threads {
            let found = self.store.get(&thread.id).await;
            let found = found.map_err(|error| damaged(format!("it names {}: {error}", thread.id)))?;
            if !matches!(found.shelf, Shelf::Active | Shelf::Archived) {
                return Err(damaged(format!("{} is in its trash", thread.id)));
            }
        }
        let counted = |tx: &mut dyn crate::db::Tx| query_one(tx, COUNTED, &[], |row| Ok((row.int(0)?, row.int(1)?)));
        match self.store.inner.db.read(counted).await? {
            Some((most, least)) if most >= MAX_COUNTED || least < 0 => {
                Err(damaged("it counts further than any store does"))
            }
            _ => Ok(()),
        }
    }

    /// Compares what the seals state of each branch last with what is there.
    async fn check_seals(&mut self) -> Result<()> {
        let Some(text) = &self.manifest.anchors else { return Ok(()) };
        let anchors = Anchors::read("the bundle's seals", &mut text.as_bytes())?;
        let held: HashSet<&ThreadId> = self.manifest.threads.iter().map(|thread| &thread.id).collect();
        let mut newest: BTreeMap<(&ThreadId, BranchId), (SealedItem, String)> = BTreeMap::new();
        for seal in &anchors.seals {
            for head in anchors.heads.get(&seal.number).into_iter().flatten() {
                if let SealedHead { thread, item: Some(item), .. } = head
                    && held.contains(thread)
                {
                    newest.insert((thread, item.branch), (*item, seal.key.id()));
                }
            }
        }
        for ((thread, branch), (stated, key)) in newest {
            let address = Address { branch, depth: stated.depth };
            let found = self.store.item(thread, address).await.ok().map(|item| item.hash);
            if found != Some(stated.hash) {
                let detail = format!("a seal states another item at {address}, or it is missing");
                return Err(Error::corrupt(format!("thread {thread} of the bundle"), detail));
            }
            if !self.sealed.contains(&key) {
                self.sealed.push(key);
            }
        }
        Ok(())
    }
}

fn part_options(folder: &Path, host: &Arc<dyn Host>) -> StoreOptions {
    StoreOptions::folder(folder).host(Arc::clone(host)).label(LABEL)
}

async fn mask(part: &Store, rules: Rules) -> Result<u64> {
    let options = RedactOptions { reason: "masked in a bundle".to_owned(), ..RedactOptions::default() };
    let report = part.redact_matching(None, rules, options, true, |_, _| {}).await?;
    if report.erased == Some(false) {
        return Err(Error::Backend { detail: "what was masked could not be erased from the bundle".to_owned() });
    }
    match report.problems.into_iter().next() {
        // What can't be looked at may hold anything.
        Some(problem) => Err(Error::corrupt(format!("thread {}", problem.thread), problem.reason)),
        None => Ok(report.redacted),
    }
}

async fn describe(part: &Store, id: &ThreadId) -> Result<BundledThread> {
    let thread = part.get(id).await?;
    Ok(BundledThread {
        id: thread.id,
        title: thread.details.title.or(thread.details.preview),
        agent: thread.details.agent,
        items: u64::try_from(thread.items).unwrap_or(0),
        updated_at: thread.updated_at,
    })
}

fn digest_of(file: &Path) -> Result<Hash> {
    let failed = |error: std::io::Error| Error::io("read", file, &error);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(file).map_err(failed)?).map_err(failed)?;
    Ok(Hash(*hasher.finalize().as_bytes()))
}

fn write(manifest: &BundleManifest, file: &Path, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{BUNDLE_MAGIC}")?;
    serde_json::to_writer(&mut *out, manifest)?;
    out.write_all(b"\n")?;
    let mut encoder = zstd::Encoder::new(out, LEVEL)?;
    encoder.include_checksum(true)?;
    std::io::copy(&mut File::open(file)?, &mut encoder)?;
    encoder.finish()?.flush()
}

struct Counting<'a> {
    out: &'a mut (dyn Write + Send),
    bytes: u64,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn damaged(detail: impl Into<String>) -> Error {
    Error::corrupt("the bundle", detail)
}

fn unreadable(error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => damaged("it is cut"),
        // What opens it on the way, such as a decryption, found that it was changed.
        ErrorKind::InvalidData => damaged(error.to_string()),
        _ => Error::io("read", Path::new("the bundle"), error),
    }
}

/// Reads a line, which must end within so many bytes.
fn line(input: &mut dyn BufRead, most: u64) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    input.take(most).read_until(b'\n', &mut line).map_err(|error| unreadable(&error))?;
    match line.pop() {
        Some(b'\n') => Ok(line),
        _ if line.len() as u64 >= most.saturating_sub(1) => Err(damaged(format!("a line of it is over {most} bytes"))),
        _ => Err(damaged("it is cut")),
    }
}

fn read_manifest(input: &mut dyn BufRead) -> Result<BundleManifest> {
    let mut magic = Vec::new();
    input.take(64).read_until(b'\n', &mut magic).map_err(|error| unreadable(&error))?;
    match magic.strip_suffix(b"\n") {
        Some(magic) if magic == BUNDLE_MAGIC.as_bytes() => {}
        Some(magic) if Bundle::is_bundle(magic) => {
            return Err(Error::Unsupported { operation: "this version of bundles" });
        }
        _ => return Err(Error::invalid("bundle", "it does not begin as bundles do")),
    }
    let manifest = line(input, MOST_MANIFEST_BYTES)?;
    serde_json::from_slice(&manifest).map_err(|error| damaged(format!("what it says of itself can't be read: {error}")))
}

/// Writes the store of a bundle to a file, and checks that it is the one that was packed.
fn unfold(manifest: &BundleManifest, input: &mut (dyn BufRead + Send), file: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("write", file, &error);
    let mut out = new_file(file).map_err(failed)?;
    let mut packed = Metered { input, bytes: 0 };
    let mut decoder = zstd::Decoder::with_buffer(&mut packed).map_err(|error| unreadable(&error))?.single_frame();
    let (mut hasher, mut part, mut bytes) = (blake3::Hasher::new(), vec![0; PART_BYTES], 0_u64);
    loop {
        // What the decoder refuses is damage, whatever it calls it; what the input refuses came through `Metered`.
        let read = decoder.read(&mut part).map_err(|error| match error.kind() {
            ErrorKind::Other | ErrorKind::InvalidData => damaged(format!("it can't be unfolded: {error}")),
            _ => unreadable(&error),
        })?;
        let Some(part) = part.get(..read).filter(|part| !part.is_empty()) else { break };
        bytes += read as u64;
        let most = FREE_UNFOLDING.saturating_add(decoder.get_ref().bytes.saturating_mul(MOST_UNFOLDING));
        if bytes > manifest.bytes || bytes > most {
            return Err(damaged(format!("it unfolds to more than {} bytes", manifest.bytes.min(most))));
        }
        hasher.update(part);
        out.write_all(part).map_err(failed)?;
    }
    out.sync_all().map_err(failed)?;
    let is_whole = bytes == manifest.bytes && Hash(*hasher.finalize().as_bytes()) == manifest.digest;
    if is_whole { Ok(()) } else { Err(damaged("its store is not the one that was packed")) }
}

/// Counts what was taken from the input.
struct Metered<'a> {
    input: &'a mut (dyn BufRead + Send),
    bytes: u64,
}

impl Read for Metered<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl BufRead for Metered<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.input.consume(amount);
    }
}

/// A schema of somebody else's making could hold triggers and views of theirs: none of its statements is to run.
async fn refuse_other_schema(folder: &Path, host: &Arc<dyn Host>) -> Result<()> {
    let options = part_options(folder, host).read_only();
    let found = on_a_thread("threadkeep-bundle", move || block_on(Store::examine(options, true))).await?;
    let is_other = |code: &str| code.starts_with("schema-") && code != "schema-older";
    let wrong = found.findings.iter().find(|finding| finding.severity == Severity::Error || is_other(finding.code));
    match wrong {
        Some(finding) if finding.code == "schema-newer" => Ok(()),
        Some(finding) => Err(damaged(format!("{}: {}", finding.place, finding.what))),
        None => Ok(()),
    }
}

fn remove(folder: &Path) -> Result<()> {
    std::fs::remove_dir_all(folder).map_err(|error| Error::io("remove", folder, &error))
}
