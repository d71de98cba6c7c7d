//! Keys that seals are signed with, and the folder that they are kept in.
//!
//! The folder holds for every key `<id>.pub`, for the one that signs `<id>.key`, and for every store that was sealed with them
//! `last-<store id>.json`: the newest seal, by which an older copy of the store is recognised.

use std::collections::HashSet;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::item::Hash;
use crate::time::Timestamp;

const KEY: &[u8] = b"threadkeep.key.v1";
const VERSION: i64 = 1;
/// How many hex digits of the hash of a public key name it.
const ID_DIGITS: usize = 16;
/// No file of ours is larger.
const FILE_BYTES: u64 = 1 << 16;

/// Bytes that are written as hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("hex digits", format!("expected {} of them", 2 * N));
        let mut bytes = [0; N];
        if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An Ed25519 public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(pub Hex<32>);

impl PublicKey {
    pub(crate) fn of(key: &SigningKey) -> Self {
        Self(Hex(key.verifying_key().to_bytes()))
    }

    /// The name that people know the key by: 16 hex digits of the BLAKE3 hash of its 32 bytes.
    pub fn id(&self) -> String {
        let mut id = Hash::of(&self.0.0).to_string();
        id.truncate(ID_DIGITS);
        id
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().map(Self)
    }
}

/// A public key and what is said of it: what `<id>.pub` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfo {
    /// Its name.
    pub id: String,
    /// The key.
    pub public: PublicKey,
    /// When it was made, by the clock of whoever made it.
    pub created_at: Timestamp,
    /// The key that it took the place of, which vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched_by: Option<Voucher>,
}

/// What an older key says of a newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voucher {
    /// The older key.
    pub public: PublicKey,
    /// Its signature.
    pub signature: Hex<64>,
}

impl KeyInfo {
    pub(crate) fn plain(key: &SigningKey, created_at: Timestamp) -> Self {
        let public = PublicKey::of(key);
        Self { id: public.id(), public, created_at, vouched_by: None }
    }

    fn vouched_by(mut self, older: &SigningKey) -> Self {
        let public = PublicKey::of(older);
        let signature = Hex(older.sign(&self.voucher_preimage(&public)).to_bytes());
        self.vouched_by = Some(Voucher { public, signature });
        self
    }

    /// The key that vouches for this one, if its signature holds.
    fn voucher(&self) -> Option<PublicKey> {
        let voucher = self.vouched_by.as_ref()?;
        let key = VerifyingKey::from_bytes(&voucher.public.0.0).ok()?;
        let signature = Signature::from_bytes(&voucher.signature.0);
        key.verify_strict(&self.voucher_preimage(&voucher.public), &signature).ok()?;
        Some(voucher.public)
    }

    fn voucher_preimage(&self, older: &PublicKey) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        for part in [KEY, &self.public.0.0, &older.0.0] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(self.created_at.0.to_le_bytes());
        bytes
    }
}

/// The keys that are trusted, and those that they vouch for.
pub(crate) fn trusted(roots: impl IntoIterator<Item = PublicKey>, known: &[KeyInfo]) -> HashSet<PublicKey> {
    let mut trusted: HashSet<PublicKey> = roots.into_iter().collect();
    loop {
        let is_new = |info: &&KeyInfo| !trusted.contains(&info.public);
        let is_vouched = |info: &&KeyInfo| info.voucher().is_some_and(|voucher| trusted.contains(&voucher));
        match known.iter().filter(is_new).find(is_vouched) {
            Some(next) => trusted.insert(next.public),
            None => return trusted,
        };
    }
}

/// A key of the folder, and whether it signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The public part.
    #[serde(flatten)]
    pub info: KeyInfo,
    /// Whether new seals are signed with it.
    pub active: bool,
}

/// The newest seal that was made of a store with the keys of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastSeal {
    pub(crate) store: Uuid,
    pub(crate) number: i64,
    pub(crate) hash: Hash,
    pub(crate) at: Timestamp,
}

/// A file of ours: what it is, and what it holds.
#[derive(Debug, Serialize, Deserialize)]
struct Labelled<T> {
    threadkeep: String,
    version: i64,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize, Deserialize)]
struct Secret {
    id: String,
    secret: Hex<32>,
}

/// A folder of keys; for a store in a folder it is `keys` inside of it, unless another one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFolder(PathBuf);

impl KeyFolder {
    /// The folder at this path; it need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the first key.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when there is one that signs.
    pub fn create(&self, host: &dyn Host) -> Result<Key> {
        if let Some(active) = self.active()? {
            return Err(Error::AlreadyExists { what: "key", id: PublicKey::of(&active).id() });
        }
        let key = new_key(host);
        let info = KeyInfo::plain(&key, host.now());
        self.put(host, &key, &info)?;
        Ok(Key { info, active: true })
    }

    /// Makes a new key in the place of the one that signs, which vouches for it and whose private part is deleted. What it signed
    /// stays good.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none.
    pub fn rotate(&self, host: &dyn Host) -> Result<Key> {
        let older = self.active()?.ok_or_else(|| Error::not_found("key", self.0.display()))?;
        let key = new_key(host);
        // A clock that went back must not make the older key the newest.
        let since = self.read_public(&PublicKey::of(&older).id())?.created_at;
        let created_at = host.now().max(Timestamp(since.0.saturating_add(1)));
        let info = KeyInfo::plain(&key, created_at).vouched_by(&older);
        self.put(host, &key, &info)?;
        for old in self.list()?.iter().filter(|old| old.info.id != info.id) {
            self.remove_private(&old.info.id)?;
        }
        Ok(Key { info, active: true })
    }

    /// All keys, the oldest first.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names a file that holds no key.
    pub fn list(&self) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(keys),
            Err(error) => return Err(Error::io("read", &self.0, &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| Error::io("read", &self.0, &error))?;
            let name = entry.file_name();
            if let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".pub")) {
                keys.push(Key { info: self.read_public(id)?, active: self.private(id).symlink_metadata().is_ok() });
            }
        }
        keys.sort_by(|a, b| (a.info.created_at, &a.info.id).cmp(&(b.info.created_at, &b.info.id)));
        // One that is being replaced signs no more, though its private part is still there.
        let newest = keys.iter().rposition(|key| key.active);
        for (at, key) in keys.iter_mut().enumerate() {
            key.active = Some(at) == newest;
        }
        Ok(keys)
    }

    /// The key that signs.
    pub(crate) fn active(&self) -> Result<Option<SigningKey>> {
        let keys = self.list()?;
        let Some(active) = keys.iter().find(|key| key.active) else { return Ok(None) };
        let path = self.private(&active.info.id);
        let text = read_file(&path, true)?.ok_or_else(|| Error::not_found("key", &active.info.id))?;
        let secret: Secret = parse(&path, &text, "private-key")?;
        let key = SigningKey::from_bytes(&secret.secret.0);
        match PublicKey::of(&key) == active.info.public {
            true => Ok(Some(key)),
            false => {
                Err(Error::corrupt(path.display().to_string(), "it is not the private part of the key of its name"))
            }
        }
    }

    /// The newest seal of a store that is remembered here.
    pub(crate) fn last_seal(&self, store: Uuid) -> Result<Option<LastSeal>> {
        let path = self.last(store);
        let Some(text) = read_file(&path, false)? else { return Ok(None) };
        let last: LastSeal = parse(&path, &text, "last-seal")?;
        match last.store == store {
            true => Ok(Some(last)),
            false => Err(Error::corrupt(path.display().to_string(), "it is of another store")),
        }
    }

    /// Remembers the newest seal of a store.
    pub(crate) fn remember(&self, host: &dyn Host, last: LastSeal) -> Result<()> {
        let path = self.last(last.store);
        let text = print("last-seal", last)?;
        self.write(host, &path, text.as_bytes(), true)
    }

    fn put(&self, host: &dyn Host, key: &SigningKey, info: &KeyInfo) -> Result<()> {
        self.make()?;
        let secret = Secret { id: info.id.clone(), secret: Hex(key.to_bytes()) };
        // The public part first: a private one alone would be used by nobody.
        self.write(host, &self.0.join(format!("{}.pub", info.id)), print("public-key", info)?.as_bytes(), false)?;
        self.write(host, &self.private(&info.id), print("private-key", secret)?.as_bytes(), false)
    }

    fn make(&self) -> Result<()> {
        match DirBuilder::new().recursive(true).mode(0o700).create(&self.0) {
            Ok(()) => {}
            Err(error) => return Err(Error::io("create", &self.0, &error)),
        }
        let meta = std::fs::symlink_metadata(&self.0).map_err(|error| Error::io("look at", &self.0, &error))?;
        match meta.is_dir() && meta.mode() & 0o022 == 0 {
            true => Ok(()),
            false => {
                let reason = format!("{} is a link, or others can write to it", self.0.display());
                Err(Error::invalid("key folder", reason))
            }
        }
    }

    fn private(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.key"))
    }

    fn last(&self, store: Uuid) -> PathBuf {
        self.0.join(format!("last-{store}.json"))
    }

    fn read_public(&self, id: &str) -> Result<KeyInfo> {
        let path = self.0.join(format!("{id}.pub"));
        let text = read_file(&path, false)?.ok_or_else(|| Error::not_found("key", id))?;
        let info: KeyInfo = parse_key(&path.display().to_string(), &text)?;
        match info.id == id {
            true => Ok(info),
            false => Err(Error::corrupt(path.display().to_string(), "it holds the key of another name")),
        }
    }

    fn remove_private(&self, id: &str) -> Result<()> {
        let path = self.private(id);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path, &error)),
            _ => self.sync(),
        }
    }

    /// Writes a file so that it appears whole, or replaces the one of that name so.
    fn write(&self, host: &dyn Host, path: &Path, bytes: &[u8], replace: bool) -> Result<()> {
        self.make()?;
        let mut random = [0; 8];
        host.fill_random(&mut random);
        let temporary = self.0.join(format!(".{}.tmp", Hex(random)));
        let written = write_new(&temporary, bytes).and_then(|()| match replace {
            true => std::fs::rename(&temporary, path),
            false => std::fs::hard_link(&temporary, path).and_then(|()| std::fs::remove_file(&temporary)),
        });
        if let Err(error) = written {
            // What failed is what is told.
            drop(std::fs::remove_file(&temporary));
            return Err(Error::io("write", path, &error));
        }
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(|error| Error::io("sync", &self.0, &error))
    }
}

/// Reads what a `.pub` file holds, or the 64 hex digits of a public key alone.
///
/// # Errors
/// [`Error::Corrupt`] when it is neither.
pub fn parse_key(name: &str, text: &str) -> Result<KeyInfo> {
    if let Ok(public) = text.trim().parse::<PublicKey>() {
        return Ok(KeyInfo { id: public.id(), public, created_at: Timestamp(0), vouched_by: None });
    }
    let info: KeyInfo = parse(name.as_ref(), text, "public-key")?;
    match info.id == info.public.id() {
        true => Ok(info),
        false => Err(Error::corrupt(name, "its id is not that of its key")),
    }
}

/// What a `.pub` file holds.
///
/// # Errors
/// None that can be expected.
pub fn print_key(info: &KeyInfo) -> Result<String> {
    print("public-key", info)
}

fn new_key(host: &dyn Host) -> SigningKey {
    let mut seed = [0; 32];
    host.fill_random(&mut seed);
    SigningKey::from_bytes(&seed)
}

fn print(what: &str, body: impl Serialize) -> Result<String> {
    let labelled = Labelled { threadkeep: what.to_owned(), version: VERSION, body };
    let text = serde_json::to_string(&labelled);
    text.map(|text| text + "\n").map_err(|error| Error::Backend { detail: format!("writing a {what}: {error}") })
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str, what: &str) -> Result<T> {
    let place = || path.display().to_string();
    // The words of the parser could repeat a secret.
    let labelled: Labelled<T> =
        serde_json::from_str(text).map_err(|_| Error::corrupt(place(), format!("it is no {what}")))?;
    if labelled.threadkeep != what || labelled.version != VERSION {
        let found = format!("it is a {} of version {}", labelled.threadkeep, labelled.version);
        return Err(Error::corrupt(place(), found));
    }
    Ok(labelled.body)
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file of ours, following no link; `None` when it is not there.
fn read_file(path: &Path, is_private: bool) -> Result<Option<String>> {
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let told = |error: std::io::Error| Error::io("read", path, &error);
    let file = match OpenOptions::new().read(true).custom_flags(nofollow).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(told(error)),
    };
    if is_private && file.metadata().map_err(told)?.mode() & 0o077 != 0 {
        let reason = format!("others can read or write {}; make it 0600, or rotate the key", path.display());
        return Err(Error::invalid("key", reason));
    }
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text).map_err(told)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Hex, KeyFolder, LastSeal, PublicKey, parse_key, print_key, trusted};
    use crate::error::Error;
    use crate::host::SystemHost;
    use crate::seal::NOTHING;
    use crate::time::Timestamp;

    #[test]
    fn a_key_is_made_once_and_rotated_and_the_new_one_is_vouched_for() {
        let temp = tempfile::tempdir().unwrap();
        let keys = KeyFolder::at(temp.path().join("keys"));
        assert!(keys.list().unwrap().is_empty());
        assert!(matches!(keys.rotate(&SystemHost), Err(Error::NotFound { .. })));
        let first = keys.create(&SystemHost).unwrap();
        assert!(matches!(keys.create(&SystemHost), Err(Error::AlreadyExists { .. })));
        let second = keys.rotate(&SystemHost).unwrap();
        let third = keys.rotate(&SystemHost).unwrap();
        let listed = keys.list().unwrap();
        assert_eq!(listed.iter().map(|key| key.active).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(PublicKey::of(&keys.active().unwrap().unwrap()), third.info.public);
        let known: Vec<_> = listed.into_iter().map(|key| key.info).collect();
        assert_eq!(trusted([first.info.public], &known).len(), 3);
        assert_eq!(trusted([second.info.public], &known).len(), 2);
        let mut forged = known;
        forged[1].vouched_by.as_mut().unwrap().signature.0[0] ^= 1;
        assert_eq!(trusted([first.info.public], &forged).len(), 1);
        let private: Vec<_> = std::fs::read_dir(keys.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(private.iter().filter(|name| name.to_string_lossy().ends_with(".key")).count(), 1, "{private:?}");
    }

    #[test]
    fn nobody_else_can_read_the_files_and_a_key_that_others_can_read_does_not_sign() {
        let temp = tempfile::tempdir().unwrap();
        let keys = KeyFolder::at(temp.path().join("keys"));
        let key = keys.create(&SystemHost).unwrap();
        let store = uuid::Uuid::from_bytes([1; 16]);
        keys.remember(&SystemHost, LastSeal { store, number: 1, hash: NOTHING, at: Timestamp(0) }).unwrap();
        keys.remember(&SystemHost, LastSeal { store, number: 2, hash: NOTHING, at: Timestamp(0) }).unwrap();
        assert_eq!(keys.last_seal(store).unwrap().map(|last| last.number), Some(2));
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(keys.path()), 0o700);
        for entry in std::fs::read_dir(keys.path()).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        let private = keys.path().join(format!("{}.key", key.info.id));
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(keys.active(), Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_public_key_is_read_as_it_is_written_and_alone() {
        let temp = tempfile::tempdir().unwrap();
        let key = KeyFolder::at(temp.path().join("keys")).create(&SystemHost).unwrap().info;
        assert_eq!(parse_key("f", &print_key(&key).unwrap()).unwrap(), key);
        assert_eq!(parse_key("f", &format!("{}\n", key.public)).unwrap().public, key.public);
        assert!(parse_key("f", "nonsense").is_err());
        assert!("zz".parse::<Hex<1>>().is_err());
        assert!("é".parse::<Hex<1>>().is_err());
    }
}
