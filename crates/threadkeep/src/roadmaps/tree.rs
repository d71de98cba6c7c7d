//! The tree of a roadmap: TOML that is read, checked, and edited so that what is not changed stays as it was written.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::NodePatch;
use crate::thread::Change;

const MAX_NODES: usize = 10_000;
const MAX_ID_BYTES: usize = 256;

/// What is to be done, and how far it is: nodes that name each other by their ids.
///
/// A field that is not named here is refused, so nothing can ride along in a roadmap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoadmapTree {
    /// What all of it is for.
    pub goal: Option<String>,
    /// How the results of nodes become one.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// The nodes in the order of the text: `[[subtask]]` in TOML.
    #[serde(default, rename = "subtask")]
    pub nodes: Vec<RoadmapNode>,
}

/// How the results of nodes become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Aggregation {
    /// One behind the other, in the order of the nodes.
    #[default]
    Concat,
    /// The last one alone.
    LastWins,
    /// Something makes one of them.
    Reduce,
    /// As the one who runs it knows.
    Custom,
}

/// A node of a roadmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoadmapNode {
    /// Its name in the tree: 1 to 256 bytes, no control characters.
    pub id: String,
    /// What is to be done.
    pub instruction: String,
    /// The nodes that must be done before.
    #[serde(default)]
    pub deps: Vec<String>,
    /// Whether it may be worked on beside others.
    #[serde(default)]
    pub parallel_ok: bool,
    /// What is to be looked at.
    #[serde(default)]
    pub context: Vec<String>,
    /// The command that says whether it is done.
    pub verify: Option<String>,
    /// How far it is.
    #[serde(default)]
    pub status: NodeStatus,
    /// What came of it.
    pub result: Option<String>,
    /// The node that it is a part of.
    pub parent: Option<String>,
    /// How large a piece of work it is.
    #[serde(default)]
    pub kind: NodeKind,
    /// What it asks to be allowed. What it does not name it does not ask for.
    #[serde(default)]
    pub caveat_policy: CaveatPolicy,
}

/// How far a node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// It is not begun.
    #[default]
    Pending,
    /// It is worked on.
    Running,
    /// It is done.
    Done,
    /// It failed.
    Failed,
}

impl NodeStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// How large a piece of work a node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// All of it.
    Roadmap,
    /// A part of a roadmap.
    Phase,
    /// A part of a phase.
    Plan,
    /// What somebody does.
    #[default]
    Task,
}

impl NodeKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Roadmap => "roadmap",
            Self::Phase => "phase",
            Self::Plan => "plan",
            Self::Task => "task",
        }
    }
}

/// What a node asks to be allowed; nothing, if it does not say so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CaveatPolicy {
    /// To read files.
    pub fs_read: Access,
    /// To write files.
    pub fs_write: Access,
    /// To run commands.
    pub exec: Access,
    /// To use the network.
    pub net: Access,
    /// To call tools so often.
    pub max_calls: Option<u64>,
}

/// How much of something is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Access {
    /// All of it, or nothing.
    Word(AccessWord),
    /// These alone.
    Only(Vec<String>),
}

impl Default for Access {
    fn default() -> Self {
        Self::Word(AccessWord::None)
    }
}

/// All or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessWord {
    /// All of it.
    All,
    /// Nothing.
    None,
}

/// How many nodes of a roadmap are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// Not begun.
    pub pending: u64,
    /// Worked on.
    pub running: u64,
    /// Done.
    pub done: u64,
    /// Failed.
    pub failed: u64,
}

impl NodeCounts {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.pending + self.running + self.done + self.failed
    }
}

impl RoadmapTree {
    /// Reads a tree and checks it: ids differ, the nodes that others name are there, and nothing comes round to itself.
    ///
    /// # Errors
    /// Why it is no tree, and where.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tree: Self = toml::from_str(text).map_err(|error| one_line(&error))?;
        tree.check()?;
        Ok(tree)
    }

    /// The node of an id.
    pub fn node(&self, id: &str) -> Option<&RoadmapNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// How many nodes are how far.
    pub fn counts(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for node in &self.nodes {
            *match node.status {
                NodeStatus::Pending => &mut counts.pending,
                NodeStatus::Running => &mut counts.running,
                NodeStatus::Done => &mut counts.done,
                NodeStatus::Failed => &mut counts.failed,
            } += 1;
        }
        counts
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.len() > MAX_NODES {
            return Err(format!("{} nodes; a roadmap has at most {MAX_NODES}", self.nodes.len()));
        }
        let mut places = HashMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            check_id(&node.id)?;
            if places.insert(node.id.as_str(), place).is_some() {
                return Err(format!("two nodes are called `{}`", node.id));
            }
        }
        let place_of = |node: &RoadmapNode, named: &String, what: &str| {
            places
                .get(named.as_str())
                .copied()
                .ok_or_else(|| format!("node `{}`: there is no node `{named}` ({what})", node.id))
        };
        let (mut deps, mut parents) = (Vec::new(), Vec::new());
        for node in &self.nodes {
            deps.push(node.deps.iter().map(|dep| place_of(node, dep, "deps")).collect::<Result<Vec<_>, _>>()?);
            parents.push(
                node.parent.iter().map(|parent| place_of(node, parent, "parent")).collect::<Result<Vec<_>, _>>()?,
            );
        }
        for (links, what) in [(deps, "depends on"), (parents, "is a part of")] {
            if let Some(node) = on_a_cycle(&links).and_then(|place| self.nodes.get(place)) {
                return Err(format!("node `{}` {what} itself, through others or not", node.id));
            }
        }
        Ok(())
    }
}

fn check_id(id: &str) -> Result<(), String> {
    match id {
        "" => Err("a node's id is empty".to_owned()),
        id if id.len() > MAX_ID_BYTES => Err(format!("a node's id is longer than {MAX_ID_BYTES} bytes")),
        id if id.chars().any(char::is_control) => Err(format!("node {id:?}: its id holds a control character")),
        _ => Ok(()),
    }
}

/// A place on a cycle, if there is one: what is left when everything is taken away that leads nowhere.
fn on_a_cycle(links: &[Vec<usize>]) -> Option<usize> {
    let mut open: Vec<usize> = links.iter().map(|to| to.iter().collect::<HashSet<_>>().len()).collect();
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); links.len()];
    for (place, to) in links.iter().enumerate() {
        for target in to.iter().collect::<HashSet<_>>() {
            if let Some(from) = from.get_mut(*target) {
                from.push(place);
            }
        }
    }
    let mut ended: Vec<usize> = (0..links.len()).filter(|place| open.get(*place) == Some(&0)).collect();
    while let Some(place) = ended.pop() {
        for source in from.get(place).into_iter().flatten() {
            if let Some(left) = open.get_mut(*source) {
                *left -= 1;
                if *left == 0 {
                    ended.push(*source);
                }
            }
        }
    }
    // What is left leads to a cycle; after as many steps as there are places one stands on it.
    let mut place = open.iter().position(|left| *left > 0)?;
    for _ in 0..links.len() {
        place = *links.get(place)?.iter().find(|next| open.get(**next).is_some_and(|left| *left > 0))?;
    }
    Some(place)
}

/// Why a text can't be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unedited {
    /// It can't be read, or is no tree afterwards.
    NoTree(String),
    /// It has no such node.
    NoNode,
}

/// The text with a node's status and result as the patch names them; comments, order and all other bytes stay.
pub(crate) fn edited(text: &str, id: &str, patch: &NodePatch) -> Result<String, Unedited> {
    RoadmapTree::parse(text).map_err(Unedited::NoTree)?;
    let mut document: DocumentMut = text.parse().map_err(|error| Unedited::NoTree(one_line(&error)))?;
    let node = match document.get_mut("subtask") {
        Some(Item::ArrayOfTables(tables)) => {
            tables.iter_mut().map(|table| -> &mut dyn TableLike { table }).find(|table| is_called(*table, id))
        }
        Some(Item::Value(Value::Array(tables))) => tables
            .iter_mut()
            .filter_map(Value::as_inline_table_mut)
            .map(|table| -> &mut dyn TableLike { table })
            .find(|table| is_called(*table, id)),
        _ => None,
    };
    let node = node.ok_or(Unedited::NoNode)?;
    if let Some(status) = patch.status {
        set(node, "status", status.as_str());
    }
    match &patch.result {
        Change::Keep => {}
        Change::Clear => drop(node.remove("result")),
        Change::Set(result) => set(node, "result", result),
    }
    let mut edited = document.to_string();
    if !text.ends_with('\n') && edited.ends_with('\n') {
        edited.pop();
    }
    let tree = RoadmapTree::parse(&edited).map_err(Unedited::NoTree)?;
    // The editor ends every line in one way; a text that ends all of them in the other keeps to it.
    if text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count() {
        let other = edited.replace("\r\n", "\n").replace('\n', "\r\n");
        if RoadmapTree::parse(&other).is_ok_and(|read| read == tree) {
            return Ok(other);
        }
    }
    Ok(edited)
}

fn is_called(table: &dyn TableLike, id: &str) -> bool {
    table.get("id").and_then(Item::as_str) == Some(id)
}

/// Sets a value where it stands, or at the end of its table.
fn set(table: &mut dyn TableLike, key: &str, value: &str) {
    if let Some(Item::Value(former)) = table.get_mut(key) {
        let decor = former.decor().clone();
        *former = Value::from(value);
        *former.decor_mut() = decor;
    } else {
        table.insert(key, toml_edit::value(value));
    }
}

/// An error of the parser without its drawing of the place: where it is, and what.
fn one_line(error: &impl ToString) -> String {
    let words = error.to_string();
    let lines = words.lines().filter(|line| {
        !line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']).starts_with('|')
    });
    lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::{Access, AccessWord, NodeKind, NodeStatus, RoadmapTree, Unedited, edited};
    use crate::roadmaps::NodePatch;
    use crate::thread::Change;

    const TREE: &str = r#"# what we are at
goal = "ship it"

[[subtask]]
id = "a"            # first
instruction = "read"
status = "pending"  # for now

[[subtask]]
id = "b"
parent = "a"
deps = ["a"]
instruction = '''write
it'''
kind = "phase"
[subtask.caveat_policy]
fs_read = "all"
exec = ["cargo"]
# the end
"#;

    #[test]
    fn a_tree_is_read_and_asks_for_nothing_that_it_does_not_name() {
        let tree = RoadmapTree::parse(TREE).unwrap();
        let policy = &tree.node("b").unwrap().caveat_policy;
        assert_eq!(policy.fs_read, Access::Word(AccessWord::All));
        assert_eq!(policy.exec, Access::Only(vec!["cargo".into()]));
        assert_eq!((&policy.net, &policy.fs_write, policy.max_calls), (&Access::default(), &Access::default(), None));
        assert_eq!((tree.nodes[0].kind, tree.nodes[1].kind), (NodeKind::Task, NodeKind::Phase));
        assert_eq!(tree.counts().all(), 2);
        assert_eq!(RoadmapTree::parse("").unwrap(), RoadmapTree::default());
    }

    #[test]
    fn what_is_no_tree_is_refused_with_the_place() {
        let node = |rest: &str| format!("[[subtask]]\nid = \"n\"\ninstruction = \"x\"\n{rest}\n");
        let cases = [
            ("goal = ".to_owned(), "line 1"),
            ("owner = \"me\"".to_owned(), "`owner`"),
            (node("api_key = \"x\""), "`api_key`"),
            (node("caveat_policy = { sudo = \"all\" }"), "`sudo`"),
            (node("status = \"maybe\""), "`maybe`"),
            (node("kind = \"epic\""), "`epic`"),
            (node("deps = [\"gone\"]"), "`gone`"),
            (node("parent = \"gone\""), "`gone`"),
            (node("deps = [\"n\"]"), "`n` depends on itself"),
            (node("parent = \"n\""), "`n` is a part of itself"),
            (node("") + &node(""), "two nodes"),
            ("[[subtask]]\nid = \"\"\ninstruction = \"x\"".to_owned(), "empty"),
            ("[[subtask]]\nid = \"a\\nb\"\ninstruction = \"x\"".to_owned(), "control character"),
            ("[[subtask]]\nid = \"a\"".to_owned(), "`instruction`"),
            ("[subtask]\nid = \"a\"".to_owned(), "line 1"),
        ];
        for (text, words) in cases {
            let told = RoadmapTree::parse(&text).unwrap_err();
            assert!(told.contains(words), "{text:?}: {told:?}");
        }
    }

    #[test]
    fn a_long_cycle_is_found_and_a_long_chain_is_none() {
        let chain = |last: &str, key: &str| {
            let mut text = String::new();
            for place in 0..10_000 {
                let to = if place == 9_999 { last.to_owned() } else { format!("n{}", place + 1) };
                let to = if to.is_empty() {
                    String::new()
                } else if key == "deps" {
                    format!("deps = [\"{to}\"]")
                } else {
                    format!("parent = \"{to}\"")
                };
                text += &format!("[[subtask]]\nid = \"n{place}\"\ninstruction = \"\"\n{to}\n");
            }
            text
        };
        for key in ["deps", "parent"] {
            assert!(RoadmapTree::parse(&chain("", key)).is_ok());
            assert!(RoadmapTree::parse(&chain("n5000", key)).unwrap_err().contains("itself"));
        }
        let one_more = chain("", "deps") + "[[subtask]]\nid = \"more\"\ninstruction = \"\"\n";
        assert!(RoadmapTree::parse(&one_more).unwrap_err().contains("10001 nodes"));
    }

    #[test]
    fn an_edit_keeps_every_other_byte() {
        let done = NodePatch { status: Some(NodeStatus::Done), ..NodePatch::default() };
        let expected = TREE.replace("status = \"pending\"  # for now", "status = \"done\"  # for now");
        assert_eq!(edited(TREE, "a", &done).unwrap(), expected);
        let both = NodePatch {
            status: Some(NodeStatus::Failed),
            result: Change::Set("it \"broke\"\nhere".into()),
            ..NodePatch::default()
        };
        let text = edited(TREE, "b", &both).unwrap();
        let node = RoadmapTree::parse(&text).unwrap().node("b").unwrap().clone();
        assert_eq!((node.status, node.result.as_deref()), (NodeStatus::Failed, Some("it \"broke\"\nhere")));
        assert_eq!(node.caveat_policy, RoadmapTree::parse(TREE).unwrap().node("b").unwrap().caveat_policy);
        for line in TREE.lines() {
            assert!(text.lines().any(|kept| kept == line), "{line:?} is gone:\n{text}");
        }
        let cleared = NodePatch { result: Change::Clear, ..NodePatch::default() };
        assert_eq!(RoadmapTree::parse(&edited(&text, "b", &cleared).unwrap()).unwrap().node("b").unwrap().result, None);
        assert_eq!(edited(TREE, "c", &done), Err(Unedited::NoNode));
    }

    #[test]
    fn an_edit_keeps_ends_of_lines() {
        let text = TREE.replace('\n', "\r\n");
        let done = NodePatch { status: Some(NodeStatus::Done), ..NodePatch::default() };
        assert_eq!(edited(&text, "a", &done).unwrap(), text.replace("\"pending\"", "\"done\""));
    }

    #[test]
    fn nodes_in_one_line_are_edited_too() {
        let text = r#"subtask = [ { id = "a", instruction = "x" }, { id = "b", instruction = "y" } ] # short"#;
        let done = NodePatch { status: Some(NodeStatus::Done), ..NodePatch::default() };
        let text = edited(text, "b", &done).unwrap();
        let tree = RoadmapTree::parse(&text).unwrap();
        assert_eq!((tree.nodes[0].status, tree.nodes[1].status), (NodeStatus::Pending, NodeStatus::Done));
        assert!(text.ends_with("# short"), "{text}");
    }
}
