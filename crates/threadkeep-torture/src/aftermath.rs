//! What a power cut can leave of a recorded run: a model of file systems, and the states that it allows.
//!
//! Two kinds of file systems are played. In both, what was written to a file is stored once a sync of that file that began
//! afterwards has returned; until then any part of it may be.
//!
//! * [`Model::Strict`] promises what POSIX does: a name is stored by a sync of the folder it stands in, and by nothing else.
//!   Of what is not stored, anything may be there, in any choice.
//! * [`Model::Journaled`] is that of ext4 and XFS: names and lengths go through one journal, in order. A sync that has
//!   anything of its file to store there stores all of the journal until then, and of the rest a beginning is there.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use crate::Result;
use crate::plan::Random;
use crate::recording::{Act, Node, ROOT, Recording, Step};

const SECTOR: usize = 512;
const PAGE: usize = 4_096;

/// What a file system promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Names are stored by syncs of their folders alone.
    Strict,
    /// Names and lengths are stored in order, by any sync that needs the journal.
    Journaled,
}

/// What is planted in a disk to see whether it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Syncs do what they promise.
    Honest,
    /// Syncs return and do nothing.
    IgnoresSyncs,
    /// Syncs of folders do nothing.
    IgnoresFolders,
}

/// Which of the things that are not stored are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None of them.
    Nothing,
    /// All of them.
    Everything,
    /// The first ones, and the next one in part.
    Beginning,
    /// All but one.
    AllButOne,
    /// One alone, and all names.
    One,
    /// Any of them.
    Any,
    /// Any of them, and of each any sectors.
    Sectors,
    /// The same with pages of four kilobytes.
    Pages,
    /// Lengths without their bytes, which are zeros.
    Hollow,
    /// Names without bytes, or bytes without names.
    OneKind,
}

/// Choices that follow from chance.
pub(crate) const CHOICES: [Choice; 8] = [
    Choice::Beginning,
    Choice::AllButOne,
    Choice::One,
    Choice::Any,
    Choice::Sectors,
    Choice::Pages,
    Choice::Hollow,
    Choice::OneKind,
];

/// Folders and files.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    names: BTreeMap<Node, BTreeMap<String, Node>>,
    contents: BTreeMap<Node, Arc<Vec<u8>>>,
}

/// A moment of a recording: what is stored, and what was done beside that.
#[derive(Debug)]
pub(crate) struct Cut<'a> {
    stored: Image,
    waiting: Vec<&'a Step>,
    model: Model,
}

/// Is shown a path and what the file there holds; a folder holds nothing.
type Visitor<'a> = dyn FnMut(&str, Option<&[u8]>) -> Result<()> + 'a;

/// How much of a step is there.
#[derive(Debug, Clone)]
enum Kept {
    No,
    Whole,
    /// The length alone.
    Hollow,
    /// Parts of that many bytes, each there or not.
    Parts(usize, Vec<bool>),
}

impl<'a> Cut<'a> {
    /// The power fails just before a moment.
    pub(crate) fn at(recording: &'a Recording, moment: usize, model: Model, disk: Disk) -> Self {
        let steps = recording.steps.iter().take_while(|step| step.begin < moment);
        let mut stored = Image { names: recording.names.clone(), contents: recording.contents.clone() };
        let mut waiting: Vec<&Step> = Vec::new();
        let mut lengths: HashMap<Node, usize> = stored.contents.iter().map(|(node, is)| (*node, is.len())).collect();
        let mut grown: Vec<(Node, usize)> = Vec::new();
        for step in steps {
            let Act::Sync { node, all } = step.act else {
                if let Act::Write { node, at, bytes } = &step.act {
                    let length = lengths.entry(*node).or_default();
                    if at + bytes.len() > *length {
                        *length = at + bytes.len();
                        grown.push((*node, step.end));
                    }
                } else if let Act::Resize { node, len } = step.act {
                    lengths.insert(node, len);
                }
                waiting.push(step);
                continue;
            };
            let works = match disk {
                Disk::Honest => true,
                Disk::IgnoresSyncs => false,
                Disk::IgnoresFolders => !is_folder(&stored, &waiting, node),
            };
            if step.end >= moment || !works {
                continue;
            }
            let in_time = |end: usize| end < step.begin;
            let commits = model == Model::Journaled
                && (all
                    || grown.iter().any(|(grown, end)| *grown == node && in_time(*end))
                    || waiting.iter().any(|other| in_time(other.end) && is_of_journal(&other.act, node)));
            if commits {
                grown.retain(|(_, end)| !in_time(*end));
            }
            waiting.retain(|other| {
                let covered = in_time(other.end)
                    && (is_stored_by(&other.act, node) || commits && !matches!(other.act, Act::Write { .. }));
                if covered {
                    stored.apply(&other.act, &Kept::Whole);
                }
                !covered
            });
        }
        Self { stored, waiting, model }
    }

    /// How many things are not stored.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// One of the states that the cut may leave.
    pub(crate) fn state(&self, choice: Choice, random: &mut Random) -> Image {
        let mut image = self.stored.clone();
        let count = self.waiting.len() as u64;
        let is_name = |step: &Step| !matches!(step.act, Act::Write { .. });
        let names = self.waiting.iter().filter(|step| is_name(step)).count() as u64;
        // In a journal some beginning is there, whatever happens to the bytes.
        let (all_names, no_names) = (random.below(2) == 0, random.below(4) == 0);
        let mut journal = if all_names { names } else { random.below(names + 1) };
        if no_names {
            journal = 0;
        }
        let (pivot, bytes_only) = (random.below(count), random.below(2) == 0);
        for (number, step) in (0_u64..).zip(&self.waiting) {
            let kept = match choice {
                Choice::Nothing => Kept::No,
                Choice::Everything => Kept::Whole,
                Choice::Beginning if number == pivot => parts(&step.act, SECTOR, random, true),
                Choice::Beginning => whole_if(number < pivot),
                Choice::AllButOne => whole_if(number != pivot),
                Choice::One => whole_if(number == pivot || is_name(step)),
                Choice::OneKind => whole_if(is_name(step) != bytes_only),
                _ if is_name(step) && self.model == Model::Journaled => {
                    let is_there = journal > 0;
                    journal = journal.saturating_sub(1);
                    whole_if(is_there)
                }
                Choice::Any => whole_if(random.below(2) == 0),
                Choice::Sectors => parts(&step.act, SECTOR, random, false),
                Choice::Pages => parts(&step.act, PAGE, random, false),
                Choice::Hollow => match random.below(3) {
                    0 => Kept::Whole,
                    _ => Kept::Hollow,
                },
            };
            image.apply(&step.act, &kept);
        }
        image
    }
}

fn whole_if(is_there: bool) -> Kept {
    if is_there { Kept::Whole } else { Kept::No }
}

/// Any parts of what was written, or those at its beginning. A name is there or not.
fn parts(act: &Act, size: usize, random: &mut Random, from_the_start: bool) -> Kept {
    let Act::Write { at, bytes, .. } = act else { return whole_if(random.below(2) == 0) };
    let count = (at + bytes.len()).div_ceil(size) - at / size;
    let first = usize::try_from(random.below(count as u64 + 1)).unwrap_or(0);
    Kept::Parts(size, (0..count).map(|part| if from_the_start { part < first } else { random.below(2) == 0 }).collect())
}

fn is_folder(stored: &Image, waiting: &[&Step], node: Node) -> bool {
    let makes = |step: &&Step| matches!(step.act, Act::Make { node: made, folder: true, .. } if made == node);
    stored.names.contains_key(&node) || waiting.iter().any(makes)
}

/// Whether a sync of the node stores this by the words of POSIX.
fn is_stored_by(act: &Act, node: Node) -> bool {
    match act {
        Act::Write { node: of, .. } | Act::Resize { node: of, .. } => *of == node,
        Act::Make { dir, .. } | Act::Remove { dir, .. } => *dir == node,
        Act::Move { from, to, .. } => from.0 == node || to.0 == node,
        Act::Sync { .. } => false,
    }
}

/// Whether the journal holds this of a node, so that a sync of it has to store the journal.
fn is_of_journal(act: &Act, node: Node) -> bool {
    match act {
        Act::Write { .. } | Act::Sync { .. } => false,
        Act::Resize { node: of, .. } => *of == node,
        Act::Make { dir, node: of, .. } | Act::Move { to: (dir, _), node: of, .. } => *of == node || *dir == node,
        Act::Remove { dir, .. } => *dir == node,
    }
}

impl Image {
    fn apply(&mut self, act: &Act, kept: &Kept) {
        match (act, kept) {
            (_, Kept::No) | (Act::Sync { .. }, _) => {}
            (Act::Write { node, at, bytes }, _) => self.write(*node, *at, bytes, kept),
            (Act::Resize { node, len }, _) => Arc::make_mut(self.contents.entry(*node).or_default()).resize(*len, 0),
            (Act::Make { dir, name, node, folder }, _) => {
                self.names.entry(*dir).or_default().insert(name.clone(), *node);
                if *folder {
                    self.names.entry(*node).or_default();
                }
            }
            (Act::Remove { dir, name }, _) => {
                self.names.entry(*dir).or_default().remove(name);
            }
            (Act::Move { from, to, node }, _) => {
                self.names.entry(from.0).or_default().remove(&from.1);
                self.names.entry(to.0).or_default().insert(to.1.clone(), *node);
            }
        }
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8], kept: &Kept) {
        let file = Arc::make_mut(self.contents.entry(node).or_default());
        let mut put = |from: usize, to: usize, with_bytes: bool| {
            if file.len() < to {
                file.resize(to, 0);
            }
            if let (true, Some(place), Some(part)) = (with_bytes, file.get_mut(from..to), bytes.get(from - at..to - at))
            {
                place.copy_from_slice(part);
            }
        };
        let end = at + bytes.len();
        match kept {
            Kept::No => {}
            Kept::Whole => put(at, end, true),
            Kept::Hollow => put(at, end, false),
            Kept::Parts(size, parts) => {
                let first = at / size;
                for (number, _) in parts.iter().enumerate().filter(|(_, is_there)| **is_there) {
                    let from = ((first + number) * size).max(at);
                    let to = ((first + number + 1) * size).min(end);
                    put(from, to, true);
                }
            }
        }
    }

    /// What tells this state from every other one.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.visit(ROOT, "", &mut |path, bytes| {
            path.hash(&mut hasher);
            bytes.hash(&mut hasher);
            Ok(())
        })
        .ok();
        hasher.finish()
    }

    /// Writes it into a folder that does not exist yet.
    pub(crate) fn write_to(&self, folder: &Path) -> Result<()> {
        let told = |error: std::io::Error| format!("writing a state: {error}");
        std::fs::create_dir_all(folder).map_err(told)?;
        self.visit(ROOT, "", &mut |path, bytes| {
            let path = folder.join(path);
            match bytes {
                None => std::fs::create_dir(path).map_err(told),
                Some(bytes) => std::fs::write(path, bytes).map_err(told),
            }
        })
    }

    /// Visits what can be reached by name; folders have no bytes. What was never written is an empty file.
    fn visit(&self, node: Node, place: &str, visitor: &mut Visitor<'_>) -> Result<()> {
        for (name, child) in self.names.get(&node).into_iter().flatten() {
            let path = if place.is_empty() { name.clone() } else { format!("{place}/{name}") };
            if self.names.contains_key(child) {
                visitor(&path, None)?;
                self.visit(*child, &path, visitor)?;
            } else {
                visitor(&path, Some(self.contents.get(child).map_or(&[], |bytes| bytes.as_slice())))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Cut, Disk, Image, Model};
    use crate::plan::Random;
    use crate::recording::{Act, ROOT, Recording, Step};

    /// A file is made and written, and then synced, but not its folder; then it is written once more.
    fn recording() -> Recording {
        let acts = [
            Act::Make { dir: ROOT, name: "file".to_owned(), node: 1, folder: false },
            Act::Write { node: 1, at: 0, bytes: vec![1; 600].into() },
            Act::Sync { node: 1, all: false },
            Act::Write { node: 1, at: 0, bytes: vec![2; 600].into() },
        ];
        let step = |(number, act)| Step { begin: number * 2, end: number * 2 + 1, act };
        let steps = acts.into_iter().enumerate().map(step).collect();
        Recording { steps, names: [(ROOT, Default::default())].into(), moments: 9, ..Recording::default() }
    }

    fn file(image: &Image) -> Option<Vec<u8>> {
        let mut found = None;
        image
            .visit(ROOT, "", &mut |_, bytes| {
                found = bytes.map(<[u8]>::to_vec);
                Ok(())
            })
            .unwrap();
        found
    }

    fn after(moment: usize, model: Model, disk: Disk, choice: Choice) -> Option<Vec<u8>> {
        file(&Cut::at(&recording(), moment, model, disk).state(choice, &mut Random::from_seed(1)))
    }

    #[test]
    fn a_sync_of_a_file_stores_its_name_in_a_journal_alone() {
        assert_eq!(after(9, Model::Journaled, Disk::Honest, Choice::Nothing), Some(vec![1; 600]));
        assert_eq!(after(9, Model::Strict, Disk::Honest, Choice::Nothing), None);
    }

    #[test]
    fn a_sync_stores_nothing_before_it_has_returned_and_nothing_on_a_disk_that_lies() {
        assert_eq!(after(5, Model::Journaled, Disk::Honest, Choice::Nothing), None);
        assert_eq!(after(9, Model::Journaled, Disk::IgnoresSyncs, Choice::Nothing), None);
    }

    #[test]
    fn what_is_not_synced_may_be_there_in_sectors() {
        let mut seen = std::collections::BTreeSet::new();
        let recording = recording();
        let cut = Cut::at(&recording, 9, Model::Journaled, Disk::Honest);
        for seed in 0..64 {
            let bytes = file(&cut.state(Choice::Sectors, &mut Random::from_seed(seed))).unwrap();
            seen.insert((bytes[0], bytes[511], bytes[512], bytes[599]));
        }
        let whole_sectors = [(1, 1, 1, 1), (1, 1, 2, 2), (2, 2, 1, 1), (2, 2, 2, 2)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), whole_sectors);
    }
}
