//! From what people write to what is meant: threads, depths, branches, workspaces; and back to short ids.

use std::collections::HashMap;
use std::path::Path;

use threadkeep::blocking::{Store, Threads};
use threadkeep::{Address, Branch, BranchId, Error, ThreadId, Tree, WorkspaceId, WorkspaceInfo};

use crate::errors::{Code, Failure, Report};

/// Ids are not shortened below this.
const MIN_PREFIX: usize = 8;

/// A thread and, where one was named, a depth on its active path or on the path of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The thread.
    pub(crate) thread: ThreadId,
    /// The branch between two `@`.
    pub(crate) branch: Option<BranchId>,
    /// The depth after `@`.
    pub(crate) depth: Option<u32>,
}

impl Target {
    /// Finds `THREAD`, `THREAD@DEPTH`, `THREAD@BRANCH@DEPTH`, or `@DEPTH` of the newest thread. The whole is tried first: a
    /// title may hold an `@` itself.
    pub(crate) fn find(threads: &Threads, name: &str) -> Result<Self, Failure> {
        let missing = match threads.find(name) {
            Ok(thread) => return Ok(Self { thread, branch: None, depth: None }),
            Err(error @ Error::NotFound { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        let split = name.rsplit_once('@').and_then(|(name, depth)| Some((name, parse_depth(depth)?)));
        let Some((name, depth)) = split else { return Err(missing.into()) };
        let name = if name.is_empty() { "-" } else { name };
        let missing = match threads.find(name) {
            Ok(thread) => return Ok(Self { thread, branch: None, depth: Some(depth) }),
            Err(error @ Error::NotFound { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        let split = name.rsplit_once('@').filter(|(name, branch)| !name.is_empty() && !branch.is_empty());
        let Some((name, branch)) = split else { return Err(missing.into()) };
        let thread = threads.find(name)?;
        let tree = threads.tree(&thread)?;
        // What is no label and shorter than any id that is shown is rather a part of a mistyped title.
        let is_label = tree.branches.iter().any(|known| known.label.as_deref() == Some(branch));
        if !is_label && branch.len() < MIN_PREFIX {
            return Err(missing.into());
        }
        let branch = find_branch(&tree, branch)?.id;
        Ok(Self { thread, branch: Some(branch), depth: Some(depth) })
    }

    /// The address that is meant, on this branch or the active path; `None` is the head.
    pub(crate) fn address(&self, threads: &Threads, branch: Option<&str>) -> Result<Option<Address>, Failure> {
        let named = self.branch.map(|branch| branch.to_string());
        match (branch.or(named.as_deref()), self.depth) {
            (None, None) => Ok(None),
            (None, Some(depth)) => Ok(Some(threads.address_at(&self.thread, depth)?)),
            (Some(name), depth) => {
                let tree = threads.tree(&self.thread)?;
                let branch = find_branch(&tree, name)?;
                let depth = depth.unwrap_or(branch.tip);
                Ok(Some(on_path_of(&tree, branch, depth).ok_or_else(|| missing(self, depth))?))
            }
        }
    }
}

fn parse_depth(text: &str) -> Option<u32> {
    // `parse` alone would take a sign.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Whether this is `@DEPTH`.
pub(crate) fn is_item_of_latest(text: &str) -> bool {
    text.strip_prefix('@').and_then(parse_depth).is_some()
}

/// How an item is named so that every verb finds it: `THREAD@DEPTH`, or `THREAD@BRANCH@DEPTH` off the active path. Threads and
/// branches come shortened.
pub(crate) fn item(thread: &str, branch: Option<&str>, depth: u32) -> String {
    match branch {
        None => format!("{thread}@{depth}"),
        Some(branch) => format!("{thread}@{branch}@{depth}"),
    }
}

/// The name of an item of a thread, shortened.
pub(crate) fn of_item(threads: &Threads, thread: &ThreadId, at: Address) -> Result<String, Failure> {
    let short = short_id(threads, thread);
    if threads.address_at(thread, at.depth).is_ok_and(|active| active == at) {
        return Ok(item(&short, None, at.depth));
    }
    let branches = short_branches(&threads.tree(thread)?);
    let branch = branches.into_iter().find(|(branch, _)| *branch == at.branch).map(|(_, name)| name);
    Ok(item(&short, Some(&branch.unwrap_or_else(|| at.branch.to_string())), at.depth))
}

fn missing(target: &Target, depth: u32) -> Failure {
    Error::NotFound { what: "item", id: format!("{}@{depth}", target.thread) }.into()
}

/// Finds a branch by its label, its id, or an unambiguous prefix of it.
pub(crate) fn find_branch<'a>(tree: &'a Tree, name: &str) -> Result<&'a Branch, Failure> {
    let labelled = tree.branches.iter().filter(|branch| branch.label.as_deref() == Some(name));
    let mut found: Vec<&Branch> = labelled.collect();
    if found.is_empty() && !name.is_empty() {
        let name = name.to_ascii_lowercase();
        found = tree.branches.iter().filter(|branch| branch.id.to_string().starts_with(&name)).collect();
    }
    match found.as_slice() {
        [] => Err(Error::NotFound { what: "branch", id: name.to_owned() }.into()),
        [branch] => Ok(branch),
        several => {
            let candidates = several.iter().take(8).map(|branch| branch.id.to_string()).collect();
            Err(Error::Ambiguous { given: name.to_owned(), candidates }.into())
        }
    }
}

/// The address at `depth` of the path that ends with `branch`.
pub(crate) fn on_path_of(tree: &Tree, branch: &Branch, depth: u32) -> Option<Address> {
    if depth > branch.tip {
        return None;
    }
    let end = Address { branch: branch.id, depth: branch.tip };
    let base = |part: &Address| tree.branches.iter().find(|branch| branch.id == part.branch).map(|branch| branch.base);
    let parts = path(tree, Some(end));
    let part = parts.iter().find(|part| base(part).is_some_and(|base| base <= depth))?;
    Some(Address { branch: part.branch, depth })
}

/// The parts of the path that ends at `end`, end first: each branch with the last depth that is on the path.
pub(crate) fn path(tree: &Tree, end: Option<Address>) -> Vec<Address> {
    let mut parents: HashMap<BranchId, Option<Address>> =
        tree.branches.iter().map(|branch| (branch.id, branch.parent)).collect();
    let mut parts = Vec::new();
    let mut next = end;
    while let Some(part) = next {
        parts.push(part);
        // Taken out, so that a damaged tree with a loop in it has an end too.
        next = parents.remove(&part.branch).flatten();
    }
    parts
}

/// The shortest unambiguous prefix of a thread's id, of at least eight characters. A sub-agent's id is shortened in both of
/// its parts: `6e1f7c20.agent-a`.
pub(crate) fn short_id(threads: &Threads, id: &ThreadId) -> String {
    let full = id.as_str();
    if let Some((parent, rest)) = full.split_once('.')
        && let Ok(parent) = ThreadId::new(parent)
        && threads.get(&parent).is_ok()
    {
        let parent = short_id(threads, &parent);
        let shorter = (1..rest.len()).filter_map(|length| rest.get(..length));
        let mut names = shorter.map(|rest| format!("{parent}.{rest}"));
        return names
            .find(|name| threads.find(name).is_ok_and(|found| found == *id))
            .unwrap_or_else(|| full.to_owned());
    }
    let mut length = MIN_PREFIX;
    while let Some(prefix) = full.get(..length) {
        match threads.find(prefix) {
            Ok(found) if found == *id => return prefix.to_owned(),
            Err(Error::Ambiguous { candidates, .. }) => {
                let others = candidates.iter().filter(|other| *other != full);
                length = others.map(|other| common(full, other)).max().unwrap_or(0).max(length) + 1;
            }
            // A thread whose whole id is this prefix, or one that came or went just now.
            _ => length += 1,
        }
    }
    full.to_owned()
}

/// The shortest unambiguous prefix of each branch's id, in the order of the tree.
pub(crate) fn short_branches(tree: &Tree) -> Vec<(BranchId, String)> {
    let mut sorted: Vec<String> = tree.branches.iter().map(|branch| branch.id.to_string()).collect();
    sorted.sort_unstable();
    let short = |full: String| {
        let at = sorted.partition_point(|other| *other < full);
        let before = at.checked_sub(1).and_then(|before| sorted.get(before));
        let neighbours = before.into_iter().chain(sorted.get(at + 1));
        let shared = neighbours.map(|other| common(&full, other)).max().unwrap_or(0);
        full.get(..(shared + 1).max(MIN_PREFIX)).map_or(full.clone(), str::to_owned)
    };
    tree.branches.iter().map(|branch| (branch.id, short(branch.id.to_string()))).collect()
}

fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

/// Finds a known workspace by its id, an unambiguous prefix of it, its name, or a folder.
pub(crate) fn find_workspace(store: &Store, name: &str) -> Result<WorkspaceInfo, Failure> {
    if let Ok(id) = name.parse::<WorkspaceId>() {
        return Ok(store.workspace_by_id(id)?.info().clone());
    }
    let known = store.workspaces()?;
    let is_folder = is_path(name) || Path::new(name).is_dir();
    if !is_folder && let Some(found) = by_name(&known, name)? {
        return Ok(found);
    }
    let unknown = || Error::NotFound { what: "workspace", id: name.to_owned() };
    if name.is_empty() {
        return Err(unknown().into());
    }
    if let Some(workspace) = store.find_workspace(Path::new(name))? {
        return Ok(workspace.info().clone());
    }
    Ok(by_former_folder(&known, Path::new(name)).ok_or_else(unknown)?)
}

/// Whether a name can only be a folder's.
pub(crate) fn is_path(name: &str) -> bool {
    matches!(name, "." | "..") || name.contains('/')
}

fn by_name(known: &[WorkspaceInfo], name: &str) -> Result<Option<WorkspaceInfo>, Failure> {
    let mut found: Vec<_> = known.iter().filter(|info| info.name == name).collect();
    if found.is_empty() && name.len() >= 4 {
        found = known.iter().filter(|info| info.id.to_string().starts_with(name)).collect();
    }
    match found.as_slice() {
        [] => Ok(None),
        [info] => Ok(Some((*info).clone())),
        several => {
            let candidates = several.iter().take(8).map(|info| info.id.to_string()).collect();
            Err(Error::Ambiguous { given: name.to_owned(), candidates }.into())
        }
    }
}

/// A repository that was moved is known by a git folder that is no longer there to be looked at.
fn by_former_folder(known: &[WorkspaceInfo], folder: &Path) -> Option<WorkspaceInfo> {
    let folder = std::path::absolute(folder).ok()?;
    let folder = folder.to_str()?.trim_end_matches('/').to_owned();
    let ends = [format!(":{folder}"), format!(":{folder}/.git")];
    let names = |key: &str| ends.iter().any(|end| key.ends_with(end.as_str()));
    let is_it = |info: &&WorkspaceInfo| {
        info.keys.iter().any(|(kind, key)| matches!(kind.as_str(), "git" | "path") && names(key))
    };
    known.iter().find(is_it).cloned()
}

/// Refuses a title that nobody could name again.
pub(crate) fn check_title(title: &str) -> Result<(), Failure> {
    if title == "-" {
        let report = Report::new(Code::Usage, "invalid", "a thread can't be called `-`");
        return Err(report.hint("`-` names the most recent thread").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use threadkeep::blocking::Store;
    use threadkeep::{Address, Details, NewItem, NewThread, Role, StoreOptions, ThreadId};

    use super::{Target, item, parse_depth, short_branches, short_id};

    fn store(threads: &[(&str, &str)]) -> Store {
        let store = Store::open(StoreOptions::memory()).unwrap();
        let workspace = store.workspace(".".as_ref()).unwrap();
        for (id, title) in threads {
            let details = Details { title: Some((*title).to_owned()), ..Details::default() };
            let thread = NewThread { id: Some(ThreadId::new(*id).unwrap()), details, ..NewThread::default() };
            let thread = workspace.create(thread).unwrap();
            thread.append(vec![NewItem::message(Role::User, "hello")]).unwrap();
        }
        store
    }

    fn found(store: &Store, name: &str) -> Option<(String, Option<u32>)> {
        Target::find(store, name).ok().map(|target| (target.thread.to_string(), target.depth))
    }

    #[test]
    fn a_title_with_an_at_sign_is_not_split() {
        let store = store(&[("one", "mail bob@7"), ("two", "mail bob")]);
        assert_eq!(found(&store, "mail bob@7"), Some(("one".into(), None)));
        assert_eq!(found(&store, "mail bob@7@0"), Some(("one".into(), Some(0))));
        assert_eq!(found(&store, "mail bob@0"), Some(("two".into(), Some(0))));
        assert_eq!(found(&store, "two@0"), Some(("two".into(), Some(0))));
        for name in ["two@", "two@+1", "two@-1", "two@0x1", "two@99999999999", "@", "three@0"] {
            assert_eq!(found(&store, name), None, "{name}");
        }
        assert_eq!(found(&store, "@0"), found(&store, "-@0"));
        assert_eq!(parse_depth("4294967295"), Some(u32::MAX));
    }

    #[test]
    fn an_item_off_the_active_path_is_named_with_its_branch() {
        let store = store(&[("one", "One"), ("two", "mail@12345678")]);
        let live = store.resume(&ThreadId::new("one").unwrap(), false).unwrap();
        let left = live.append(vec![NewItem::message(Role::User, "left behind")]).unwrap().items[0].address();
        let root = Address { branch: left.branch, depth: 0 };
        live.rewind(root).unwrap();
        live.append(vec![NewItem::message(Role::User, "on the active path")]).unwrap();
        let address = |name: &str| Target::find(&store, name).and_then(|target| target.address(&store, None));
        assert_ne!(address("one@1").unwrap(), Some(left));
        let branches = short_branches(&store.tree(live.id()).unwrap());
        let short = branches.into_iter().find(|(branch, _)| *branch == left.branch).unwrap().1;
        for branch in [&short, &left.branch.to_string()] {
            assert_eq!(address(&item("one", Some(branch), 1)).unwrap(), Some(left), "{branch}");
        }
        store.label(live.id(), left.branch, Some("try".to_owned())).unwrap();
        assert_eq!(address("one@try@1").unwrap(), Some(left));
        assert_eq!(found(&store, "mail@12345678@0"), Some(("two".into(), Some(0))), "a title comes first");
        for name in ["one@0@1", "one@@1", "@12345678@1", "one@ffffffff@1"] {
            assert!(Target::find(&store, name).is_err(), "{name}");
        }
        assert!(address(&item("one", Some(&short), 9)).is_err());
    }

    #[test]
    fn short_ids_are_unambiguous() {
        let ids = ["01234567-aa01", "01234567-aa02", "01234567", "0123456", "zz", "12345678-9"];
        let store = store(&ids.map(|id| (id, "t")));
        let short = |id: &str| short_id(&store, &ThreadId::new(id).unwrap());
        let shown = ids.map(short);
        assert_eq!(shown, ["01234567-aa01", "01234567-aa02", "01234567", "0123456", "zz", "12345678"]);
        for (id, shown) in ids.iter().zip(&shown) {
            assert_eq!(found(&store, shown), Some(((*id).to_owned(), None)));
        }
    }
}
