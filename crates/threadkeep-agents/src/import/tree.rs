//! Sessions that are many small files: which ones, how they are told to be unchanged, and their records.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::files;
use super::source::Failure;
use super::whole::{Made, Take, mark_of, name_below, root_of};
use crate::codec::{Below, Codec};
use crate::segments::{MAX_LINE_BYTES, value_end};

/// How deep a codec may lead: session, message, part.
const MAX_LEVELS: usize = 4;

/// A file of a session.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    size: u64,
    mtime: i64,
    /// The files that stand within its record, by their key.
    within: Vec<(&'static str, Vec<Self>)>,
}

/// What tells that a session's files have not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Made from the names, sizes and times of all files.
    pub(super) mark: i64,
    /// When the last of them was changed, in nanoseconds since the epoch.
    pub(super) mtime: i64,
    /// Their bytes together.
    pub(super) size: u64,
}

/// Looks at a session's files without opening one.
pub(super) fn mark(codec: &dyn Codec, session: &Path) -> io::Result<Mark> {
    let mut hasher = blake3::Hasher::new();
    let mut all = Mark { mark: 0, mtime: 0, size: 0 };
    let members = members(codec, session)?;
    let flat = members
        .iter()
        .flat_map(|member| std::iter::once(member).chain(member.within.iter().flat_map(|(_, members)| members)));
    for member in flat {
        let path = member.path.as_os_str().as_encoded_bytes();
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path);
        hasher.update(&member.size.to_le_bytes()).update(&member.mtime.to_le_bytes());
        all.mtime = all.mtime.max(member.mtime);
        all.size += member.size;
    }
    all.mark = i64::try_from(mark_of(&hasher.finalize())).unwrap_or(i64::MAX);
    Ok(all)
}

/// Reads a session's files, in the agent's order.
pub(super) fn read(codec: &dyn Codec, session: &Path, take: &mut Take<'_>) -> Result<(), Failure> {
    let members = members(codec, session)?;
    let others: Vec<PathBuf> = codec.below(session, session).into_iter().map(path_of).collect();
    let root = root_of(session, &others);
    let mut made = Made::new();
    for member in &members {
        let mut damaged = Vec::new();
        let record = record(&root, member, &mut damaged);
        let segment = match record {
            Ok(bytes) => made.record(bytes),
            Err(Damage { name, bytes, reason }) => made.damaged(&name, &bytes, &reason),
        };
        take(segment)?;
        for Damage { name, bytes, reason } in damaged {
            take(made.damaged(&name, &bytes, &reason))?;
        }
    }
    Ok(())
}

/// A file that is no JSON.
struct Damage {
    name: String,
    bytes: Vec<u8>,
    reason: String,
}

/// A member's record: its name, its bytes, and what stands within.
fn record(root: &Path, member: &Member, damaged: &mut Vec<Damage>) -> Result<Vec<u8>, Damage> {
    let mut out = opened(root, member)?;
    let mut size = out.len();
    for (key, members) in &member.within {
        out.extend_from_slice(format!(",{}:[", serde_json::Value::from(*key)).as_bytes());
        let mut first = true;
        for member in members {
            let element = opened(root, member).and_then(|bytes| {
                size += bytes.len();
                if size > MAX_LINE_BYTES {
                    let (name, reason) = (name_below(root, &member.path), "its message is too large".to_owned());
                    return Err(Damage { name, bytes, reason });
                }
                Ok(bytes)
            });
            match element {
                Ok(element) => {
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    out.extend_from_slice(&element);
                    out.push(b'}');
                }
                Err(damage) => damaged.push(damage),
            }
        }
        out.push(b']');
    }
    out.push(b'}');
    Ok(out)
}

/// The beginning of a file's record, which is not closed yet.
fn opened(root: &Path, member: &Member) -> Result<Vec<u8>, Damage> {
    let name = name_below(root, &member.path);
    let mut bytes = Vec::new();
    let read = File::open(&member.path).and_then(|file| file.take(MAX_LINE_BYTES as u64 + 1).read_to_end(&mut bytes));
    let reason = match (read, value_end(&bytes)) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(_), _) if bytes.len() > MAX_LINE_BYTES => {
            bytes.clear();
            Some(format!("it is longer than {MAX_LINE_BYTES} bytes"))
        }
        (Ok(_), Err(error)) => Some(format!("not JSON: {error}")),
        (Ok(_), Ok(end)) if end == 0 || !bytes.get(end..).unwrap_or_default().trim_ascii().is_empty() => {
            Some("not one JSON value".to_owned())
        }
        (Ok(_), Ok(_)) => None,
    };
    if let Some(reason) = reason {
        return Err(Damage { name, bytes, reason });
    }
    let head = format!("{{\"file\":{},\"json\":", serde_json::Value::from(name));
    Ok([head.as_bytes(), &bytes].concat())
}

/// The files of a session, each behind what leads to it.
fn members(codec: &dyn Codec, session: &Path) -> io::Result<Vec<Member>> {
    let mut members = Vec::new();
    let own = member(session)?.ok_or_else(|| io::Error::other("it is no file"))?;
    gather(codec, session, own, MAX_LEVELS, &mut members)?;
    Ok(members)
}

fn gather(
    codec: &dyn Codec,
    session: &Path,
    mut own: Member,
    levels: usize,
    members: &mut Vec<Member>,
) -> io::Result<()> {
    let mut following = Vec::new();
    for below in codec.below(session, &own.path) {
        match below {
            Below::Within(key, folder) => own.within.push((key, in_folder(&folder)?)),
            Below::Records(path) => match member(&path)? {
                Some(file) => following.push(file),
                None => following.extend(in_folder(&path)?),
            },
        }
    }
    members.push(own);
    for file in following.into_iter().filter(|_| levels > 0) {
        gather(codec, session, file, levels - 1, members)?;
    }
    Ok(())
}

/// A file that is there and no link to another.
fn member(path: &Path) -> io::Result<Option<Member>> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {
            let (size, mtime) = (meta.len(), files::mtime(&meta));
            Ok(Some(Member { path: path.to_owned(), size, mtime, within: Vec::new() }))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The JSON files of a folder in the order of their names; none when there is no folder.
fn in_folder(folder: &Path) -> io::Result<Vec<Member>> {
    // A link leads elsewhere than into the agent's own folders.
    if fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink()) {
        return Ok(Vec::new());
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut members = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            members.extend(member(&path)?);
        }
    }
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

fn path_of(below: Below) -> PathBuf {
    match below {
        Below::Records(path) | Below::Within(_, path) => path,
    }
}
