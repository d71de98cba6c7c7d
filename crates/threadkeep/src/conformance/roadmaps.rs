//! Roadmaps.

use super::{ensure, ensure_eq, ensure_err, promises, thread_with, workspace};
use crate::blocking::{Store, Workspace};
use crate::error::Error;
use crate::{
    Access, AccessWord, Aggregation, CaveatPolicy, Change, MAX_ROADMAP_BYTES, NewRoadmap, NewThread, NodePatch,
    NodeStatus, RoadmapId, RoadmapLinkQuery, RoadmapQuery, RoadmapUpdate, ThreadId,
};

const TREE: &str = "# the way
goal = \"ship\"

[[subtask]]
id = \"a\"
instruction = \"read\"   # first

[[subtask]]
id = \"b\"
instruction = \"write\"
deps = [\"a\"]
parent = \"a\"
";

fn id(name: &str) -> Result<RoadmapId, Error> {
    RoadmapId::new(name)
}

fn made(place: &Workspace, name: &str) -> Result<RoadmapId, Error> {
    place.create_roadmap(NewRoadmap::new(id(name)?, TREE))?;
    id(name)
}

fn ids(store: &Store, limit: usize) -> Result<Vec<String>, Error> {
    let (mut ids, mut query) = (Vec::new(), RoadmapQuery { limit, cursor: None });
    loop {
        let page = store.roadmaps(query.clone())?;
        ids.extend(page.entries.into_iter().map(|roadmap| roadmap.id.to_string()));
        match page.next_cursor {
            None => return Ok(ids),
            cursor => query.cursor = cursor,
        }
    }
}

promises! {
    /// A roadmap comes back byte by byte, with what its nodes say.
    fn a_roadmap_comes_back_as_it_was_made(store) {
        let place = workspace(store)?;
        ensure_eq!(place.roadmap(&id("r")?)?, None);
        let info = place.create_roadmap(NewRoadmap { title: Some("The way".to_owned()), ..NewRoadmap::new(id("r")?, TREE) })?;
        ensure_eq!((info.version, info.nodes.pending, info.size), (1, 2, TREE.len() as u64));
        ensure_eq!((info.title.as_deref(), info.goal.as_deref(), &info.damage), (Some("The way"), Some("ship"), &None));
        for found in [place.roadmap(&id("r")?)?, store.roadmap(&id("r")?)?] {
            ensure_eq!(found.as_ref().map(|found| (&found.info, found.text.as_str())), Some((&info, TREE)));
            ensure_eq!(found.and_then(|found| found.tree.node("b")?.parent.clone()), Some("a".to_owned()));
        }
        ensure_err!(place.create_roadmap(NewRoadmap::new(id("r")?, "")), Error::AlreadyExists { what: "roadmap", .. });
        let replaced = place.create_roadmap(NewRoadmap { replace: true, ..NewRoadmap::new(id("r")?, "goal = \"other\"") })?;
        ensure_eq!((replaced.version, replaced.title, replaced.nodes.all()), (2, None, 0));
        ensure_err!(store.create_roadmap(NewRoadmap::new(id("all")?, TREE)), Error::Invalid { field: "workspace", .. });
    }

    /// What a node does not say it asks for, it does not ask for.
    fn a_roadmap_asks_for_nothing_that_it_does_not_name(store) {
        let place = workspace(store)?;
        let node = |id: &str, rest: &str| format!("[[subtask]]\nid = \"{id}\"\ninstruction = \"\"\n{rest}\n");
        let text = node("a", "") + &node("b", "caveat_policy = { exec = [\"cargo\"], net = \"all\" }");
        place.create_roadmap(NewRoadmap::new(id("r")?, text))?;
        let tree = place.roadmap(&id("r")?)?.map(|found| found.tree).unwrap_or_default();
        let policy = |node: &str| tree.node(node).map(|node| node.caveat_policy.clone());
        ensure_eq!(policy("a"), Some(CaveatPolicy::default()));
        ensure_eq!(CaveatPolicy::default().fs_write, Access::Word(AccessWord::None));
        let only = Access::Only(vec!["cargo".to_owned()]);
        ensure_eq!(policy("b"), Some(CaveatPolicy { exec: only, net: Access::Word(AccessWord::All), ..CaveatPolicy::default() }));
        ensure_eq!((tree.aggregation, tree.nodes[0].status), (Aggregation::Concat, NodeStatus::Pending));
    }

    /// A text that is no tree is refused at every write, and changes nothing.
    fn a_roadmap_is_checked_at_every_write(store) {
        let place = workspace(store)?;
        let r = made(&place, "r")?;
        let node = |rest: &str| format!("[[subtask]]\nid = \"n\"\ninstruction = \"x\"\n{rest}\n");
        let wrong = [
            "goal =".to_owned(),
            "owner = \"me\"".to_owned(),
            node("api_key = \"x\""),
            node("status = \"maybe\""),
            node("deps = [\"gone\"]"),
            node("parent = \"gone\""),
            node("parent = \"n\""),
            node("") + &node(""),
            format!("# {}", "x".repeat(MAX_ROADMAP_BYTES)),
            "# nul \0".to_owned(),
        ];
        for text in wrong {
            ensure_err!(place.create_roadmap(NewRoadmap::new(id("new")?, text.as_str())), Error::Invalid { field: "roadmap", .. });
            let replace = NewRoadmap { replace: true, ..NewRoadmap::new(r.clone(), text.as_str()) };
            ensure_err!(place.create_roadmap(replace), Error::Invalid { field: "roadmap", .. });
            ensure_err!(place.update_roadmap(&r, RoadmapUpdate::new(text.as_str())), Error::Invalid { field: "roadmap", .. });
        }
        ensure_eq!(place.roadmap(&r)?.map(|found| (found.info.version, found.text)), Some((1, TREE.to_owned())));
        ensure_eq!(ids(store, 10)?, ["r"]);
    }

    /// A version that is not the expected one is named, and nothing is written.
    fn a_roadmap_is_written_in_the_place_of_the_expected_version_alone(store) {
        let place = workspace(store)?;
        let r = made(&place, "r")?;
        let update = |version: u64, text: &str| place.update_roadmap(&r, RoadmapUpdate { expect: Some(version), ..RoadmapUpdate::new(text) });
        ensure_eq!(update(1, "goal = \"2\"")?.version, 2);
        ensure_err!(update(1, "goal = \"3\""), Error::Conflict { what: "version", .. });
        let titled = RoadmapUpdate { title: Change::Set("T".to_owned()), ..RoadmapUpdate::new("goal = \"3\"") };
        ensure_eq!(store.update_roadmap(&r, titled)?.title, Some("T".to_owned()));
        ensure_eq!(place.update_roadmap(&r, RoadmapUpdate::new(""))?.title, Some("T".to_owned()));
        ensure_err!(place.update_roadmap(&id("absent")?, RoadmapUpdate::new("")), Error::NotFound { what: "roadmap", .. });
        ensure_err!(place.delete_roadmap(&r, Some(3)), Error::Conflict { what: "version", .. });
        ensure_eq!(place.delete_roadmap(&r, Some(4))?, true);
        ensure_eq!((place.delete_roadmap(&r, None)?, place.roadmap(&r)?), (false, None));
    }

    /// One node's status and result change, and every other byte of the text stays.
    fn a_node_is_set(store) {
        let place = workspace(store)?;
        let r = made(&place, "r")?;
        let done = NodePatch { status: Some(NodeStatus::Done), expect: Some(1), ..NodePatch::default() };
        ensure_eq!(place.set_roadmap_node(&r, "a", done.clone())?.nodes.done, 1);
        ensure_err!(place.set_roadmap_node(&r, "a", done), Error::Conflict { what: "version", .. });
        let expected = TREE.replacen("   # first\n", "   # first\nstatus = \"done\"\n", 1);
        ensure_eq!(store.roadmap(&r)?.map(|found| found.text), Some(expected.clone()));
        let result = NodePatch { result: Change::Set("it \"works\"".to_owned()), ..NodePatch::default() };
        ensure_eq!(store.set_roadmap_node(&r, "b", result.clone())?.version, 3);
        ensure_eq!(store.set_roadmap_node(&r, "b", result)?.version, 3);
        let found = store.roadmap(&r)?;
        ensure_eq!(found.as_ref().and_then(|found| found.tree.node("b")?.result.clone()), Some("it \"works\"".to_owned()));
        store.set_roadmap_node(&r, "b", NodePatch { result: Change::Clear, ..NodePatch::default() })?;
        ensure_eq!(store.roadmap(&r)?.map(|found| found.text), Some(expected));
        ensure_err!(place.set_roadmap_node(&r, "c", NodePatch::default()), Error::NotFound { what: "roadmap node", .. });
        ensure_err!(place.set_roadmap_node(&id("absent")?, "a", NodePatch::default()), Error::NotFound { what: "roadmap", .. });
    }

    /// Roadmaps are listed by their last change, the newest first, over all workspaces; each has names of its own.
    fn roadmaps_are_listed_by_their_last_change(store) {
        let (place, other) = (workspace(store)?, store.workspace(std::path::Path::new("/another"))?);
        for number in 0..9 {
            made(if number % 2 == 0 { &place } else { &other }, &format!("r{number}"))?;
        }
        place.update_roadmap(&id("r2")?, RoadmapUpdate::new("goal = \"x\""))?;
        for limit in [1, 4, 9, 100] {
            ensure_eq!(ids(store, limit)?, ["r2", "r8", "r7", "r6", "r5", "r4", "r3", "r1", "r0"]);
        }
        let own: Vec<String> = other.roadmaps(RoadmapQuery::default())?.entries.into_iter().map(|it| it.id.to_string()).collect();
        ensure_eq!(own, ["r7", "r5", "r3", "r1"]);
        let cursor = store.roadmaps(RoadmapQuery { limit: 1, cursor: None })?.next_cursor;
        ensure_err!(other.roadmaps(RoadmapQuery { limit: 1, cursor }), Error::Invalid { field: "cursor", .. });
        // What stands in another workspace is not seen from here, and what stands in both is not guessed at.
        ensure_eq!((other.roadmap(&id("r0")?)?, other.delete_roadmap(&id("r0")?, None)?), (None, false));
        made(&other, "r0")?;
        ensure_err!(store.roadmap(&id("r0")?), Error::Ambiguous { .. });
        ensure!(other.roadmap(&id("r0")?)?.is_some());
    }

    /// A thread is linked to a node that is there, and found by it; the link goes with either.
    fn threads_are_linked_to_nodes(store) {
        let place = workspace(store)?;
        let r = made(&place, "r")?;
        let (one, two) = (thread_with(store, &["a"])?, thread_with(store, &["a"])?);
        ensure_eq!(store.roadmap_link(one.id())?, None);
        let link = one.link_roadmap(&r, Some("b".to_owned()))?;
        ensure_eq!((&link.roadmap, link.node.as_deref()), (&r, Some("b")));
        ensure_eq!(store.link_roadmap(one.id(), &r, Some("b".to_owned()))?, link);
        ensure_eq!((one.roadmap_link()?, store.roadmap_link(one.id())?), (Some(link.clone()), Some(link)));
        store.link_roadmap(two.id(), &r, None)?;
        let linked = |node: Option<&str>| -> Result<usize, Error> {
            let query = RoadmapLinkQuery { node: node.map(str::to_owned), ..RoadmapLinkQuery::default() };
            Ok(store.roadmap_links(&r, query)?.entries.len())
        };
        ensure_eq!((linked(None)?, linked(Some("b"))?, linked(Some("a"))?), (2, 1, 0));
        let page = store.roadmap_links(&r, RoadmapLinkQuery { limit: 1, ..RoadmapLinkQuery::default() })?;
        let rest = store.roadmap_links(&r, RoadmapLinkQuery { limit: 1, cursor: page.next_cursor, node: None })?;
        ensure_eq!((page.entries.len(), rest.entries.len(), rest.next_cursor), (1, 1, None));
        ensure_err!(store.link_roadmap(one.id(), &r, Some("c".to_owned())), Error::NotFound { what: "roadmap node", .. });
        ensure_err!(store.link_roadmap(one.id(), &id("absent")?, None), Error::NotFound { what: "roadmap", .. });
        // Nothing is stored of this one yet.
        let later = place.create(NewThread::default())?;
        ensure_err!(store.link_roadmap(later.id(), &r, None), Error::NotFound { what: "thread", .. });
        ensure_err!(store.roadmap_link(&ThreadId::new("missing")?), Error::NotFound { what: "thread", .. });
        ensure_eq!((store.unlink_roadmap(two.id())?, two.unlink_roadmap()?), (true, false));
        store.link_roadmap(two.id(), &r, Some("a".to_owned()))?;
        two.shutdown()?;
        store.delete(two.id())?;
        store.purge(two.id())?;
        ensure_eq!(linked(None)?, 1);
        store.delete_roadmap(&r, None)?;
        ensure_eq!(store.roadmap_link(one.id())?, None);
    }

    /// A node that threads are linked to is not taken away while they are.
    fn a_linked_node_stays(store) {
        let place = workspace(store)?;
        let r = made(&place, "r")?;
        let live = thread_with(store, &["a"])?;
        live.link_roadmap(&r, Some("b".to_owned()))?;
        let without = "[[subtask]]\nid = \"a\"\ninstruction = \"x\"\n";
        ensure_err!(place.update_roadmap(&r, RoadmapUpdate::new(without)), Error::Conflict { what: "links", .. });
        let replace = NewRoadmap { replace: true, ..NewRoadmap::new(r.clone(), without) };
        ensure_err!(place.create_roadmap(replace), Error::Conflict { what: "links", .. });
        ensure_eq!(place.roadmap(&r)?.map(|found| found.text), Some(TREE.to_owned()));
        live.unlink_roadmap()?;
        ensure_eq!(place.update_roadmap(&r, RoadmapUpdate::new(without))?.version, 2);
    }

    /// A holder whose claim was taken over links nothing, and a roadmap of another workspace is none for a thread.
    fn a_fenced_off_holder_links_nothing(store) {
        let r = made(&workspace(store)?, "r")?;
        let old = thread_with(store, &["a"])?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(old.link_roadmap(&r, None), Error::ClaimLost { .. });
        new.link_roadmap(&r, None)?;
        ensure_err!(old.unlink_roadmap(), Error::ClaimLost { .. });
        let other = store.workspace(std::path::Path::new("/another"))?;
        let elsewhere = made(&other, "elsewhere")?;
        ensure_err!(new.link_roadmap(&elsewhere, None), Error::NotFound { what: "roadmap", .. });
        ensure_err!(other.link_roadmap(new.id(), &elsewhere, None), Error::NotFound { what: "thread", .. });
        ensure_eq!(store.roadmap_link(new.id())?.map(|link| link.roadmap), Some(r));
    }

    /// When workspaces become one, their roadmaps move with their links; one whose name is taken gets another.
    fn merged_workspaces_keep_both_roadmaps(store) {
        let (place, other) = (workspace(store)?, store.workspace(std::path::Path::new("/another"))?);
        made(&place, "r")?;
        made(&other, "r")?;
        made(&other, "s")?;
        let live = other.create_now(NewThread::default())?;
        live.link_roadmap(&id("r")?, Some("b".to_owned()))?;
        other.update_roadmap(&id("r")?, RoadmapUpdate::new(format!("{TREE}# other")))?;
        store.remap(other.info().id, place.info().id)?;
        let mut names = ids(store, 10)?;
        names.sort_unstable();
        ensure_eq!(names, ["r", "r-2", "s"]);
        let link = store.roadmap_link(live.id())?;
        ensure_eq!(link.map(|link| (link.workspace, link.roadmap.to_string(), link.node)), Some((place.info().id, "r-2".to_owned(), Some("b".to_owned()))));
        ensure!(place.roadmap(&id("r-2")?)?.is_some_and(|found| found.text.ends_with("# other")));
    }
}
