//! A roadmap as people see it: its nodes below those that they are a part of.

use std::collections::HashMap;

use threadkeep::{NodeKind, NodeStatus, RoadmapInfo, RoadmapNode, RoadmapTree};

use crate::errors::Failure;
use crate::output::Output;
use crate::style::Ink;
use crate::text;

/// Deeper nodes are drawn at this depth.
const DEEPEST: usize = 24;

/// The threads that work on nodes; on none, if they are linked to the whole.
pub(super) type Workers = Vec<(Option<String>, String)>;

/// Draws.
pub(super) fn roadmap(
    out: &mut Output,
    info: &RoadmapInfo,
    tree: &RoadmapTree,
    workers: &Workers,
) -> Result<(), Failure> {
    let title = info.title.as_ref().map(|title| format!("  {}", text::one_line(title))).unwrap_or_default();
    out.line(format!("{}{title}", out.paint(Ink::Strong, info.id.as_str())))?;
    if let Some(goal) = &tree.goal {
        out.line(format!("  {}", text::one_line(goal)))?;
    }
    let words = format!("  version {}: {}{}", info.version, super::progress(&info.nodes), tail(None, workers));
    out.line(out.paint(Ink::Dim, &words))?;
    if !tree.nodes.is_empty() {
        out.line("")?;
    }
    for (guides, node) in rows(tree) {
        out.line(line(out, &guides, node, workers))?;
    }
    Ok(())
}

fn line(out: &Output, guides: &str, node: &RoadmapNode, workers: &Workers) -> String {
    let (mark, ink) = match node.status {
        NodeStatus::Pending => ("○", Ink::Dim),
        NodeStatus::Running => ("●", Ink::Warn),
        NodeStatus::Done => ("✓", Ink::Good),
        NodeStatus::Failed => ("✕", Ink::Bad),
    };
    let kind = if node.kind == NodeKind::Task { String::new() } else { format!(" [{}]", node.kind.as_str()) };
    let after: Vec<String> = node.deps.iter().map(|dep| text::one_line(dep)).collect();
    let after = if after.is_empty() { String::new() } else { format!("  after {}", after.join(", ")) };
    let result = node.result.as_ref().map(|result| format!("  → {}", text::one_line(result))).unwrap_or_default();
    let rest = format!("{after}{result}{}", tail(Some(&node.id), workers));
    let (id, words) = (text::one_line(&node.id), text::one_line(&node.instruction));
    let taken = text::width(&format!("{guides}{mark} {id}{kind}  {rest}"));
    let words = text::cut(&words, out.width().saturating_sub(taken).max(24)).into_owned();
    format!(
        "{guides}{} {}{}  {words}{}",
        out.paint(ink, mark),
        out.paint(Ink::Strong, &id),
        out.paint(Ink::Dim, &kind),
        out.paint(Ink::Dim, &rest)
    )
}

fn tail(node: Option<&str>, workers: &Workers) -> String {
    let here: Vec<&str> =
        workers.iter().filter(|(of, _)| of.as_deref() == node).map(|(_, thread)| thread.as_str()).collect();
    if here.is_empty() { String::new() } else { format!("  ← {}", here.join(", ")) }
}

/// The nodes in the order in which they are drawn, each with the lines that lead to it.
fn rows<'a>(tree: &'a RoadmapTree) -> Vec<(String, &'a RoadmapNode)> {
    let mut children: HashMap<Option<&'a str>, Vec<&'a RoadmapNode>> = HashMap::new();
    for node in &tree.nodes {
        children.entry(node.parent.as_deref()).or_default().push(node);
    }
    let (mut rows, mut waiting) = (Vec::new(), Vec::new());
    let push = |waiting: &mut Vec<(&'a RoadmapNode, Vec<bool>)>, of: Option<&str>, above: &[bool]| {
        let parts = children.get(&of).map_or(&[][..], Vec::as_slice);
        let last = parts.len().saturating_sub(1);
        for (place, node) in parts.iter().enumerate().rev() {
            waiting.push((node, [above, &[place == last]].concat()));
        }
    };
    push(&mut waiting, None, &[]);
    while let Some((node, mut path)) = waiting.pop() {
        rows.push((guides(&path), node));
        path.truncate(DEEPEST);
        push(&mut waiting, Some(&node.id), &path);
    }
    rows
}

/// The lines that lead to a node: for each node above, whether it was the last of its own.
fn guides(path: &[bool]) -> String {
    // Those at the top stand for themselves.
    let Some((is_last, above)) = path.get(1..).and_then(<[bool]>::split_last) else { return String::new() };
    let mut guides: String = above.iter().map(|is_last| if *is_last { "   " } else { "│  " }).collect();
    guides.push_str(if *is_last { "└─ " } else { "├─ " });
    guides
}

#[cfg(test)]
mod tests {
    use threadkeep::{RoadmapNode, RoadmapTree};

    use super::rows;

    fn node(id: &str, parent: Option<&str>) -> RoadmapNode {
        let node = serde_json::json!({"id": id, "instruction": "", "parent": parent});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_node_is_drawn_below_the_one_that_it_is_a_part_of() {
        let nodes =
            [("a1", Some("a")), ("a", None), ("a2", Some("a")), ("a11", Some("a1")), ("b", None), ("b1", Some("b"))];
        let nodes = nodes.map(|(id, parent)| node(id, parent)).to_vec();
        let tree = RoadmapTree { nodes, ..RoadmapTree::default() };
        let drawn: Vec<String> = rows(&tree).into_iter().map(|(guides, node)| format!("{guides}{}", node.id)).collect();
        assert_eq!(drawn, ["a", "├─ a1", "│  └─ a11", "└─ a2", "b", "└─ b1"]);
    }

    #[test]
    fn a_deep_tree_takes_no_wide_lines() {
        let ids: Vec<String> = (0..5_000).map(|place| format!("n{place}")).collect();
        let mut nodes = vec![node(&ids[0], None)];
        nodes.extend(ids.windows(2).map(|pair| node(&pair[1], Some(&pair[0]))));
        let tree = RoadmapTree { nodes, ..RoadmapTree::default() };
        let drawn = rows(&tree);
        assert_eq!(drawn.len(), 5_000);
        assert!(drawn.iter().all(|(guides, _)| guides.chars().count() < 100));
    }
}
