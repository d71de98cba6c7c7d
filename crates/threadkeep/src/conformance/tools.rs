//! The tools of threads.

use super::{ensure, ensure_eq, ensure_err, promises, say, thread_with};
use crate::error::Error;
use crate::{Hash, NewThread, ThreadId, Tool};

fn tool(name: &str) -> Tool {
    Tool::new(name, r#"{"type":"object"}"#)
}

fn names(tools: &[Tool]) -> Vec<&str> {
    tools.iter().map(|tool| tool.name.as_str()).collect()
}

promises! {
    /// Tools come back in their order as they were given, and a list replaces all of the one before it.
    fn tools_are_replaced_as_a_whole(store) {
        let live = thread_with(store, &["x"])?;
        ensure_eq!(live.tools()?.tools, Vec::new());
        let full = Tool {
            description: Some("reads a file \u{1F9F5} 線".to_owned()),
            extra: Some(r#"{"annotations": {"readOnly":true}, "n":1e400, "nul":"\u0000"}"#.to_owned()),
            ..Tool::new("z_read", r#"{"type": "object",  "big":123456789012345678901234567890}"#)
        };
        let first = live.set_tools(vec![full.clone(), tool("a"), tool("m")], None)?;
        ensure_eq!(names(&first.tools), ["z_read", "a", "m"]);
        ensure_eq!(store.tools(live.id())?, first);
        ensure_eq!(first.tools[0], full);
        let second = store.set_tools(live.id(), vec![tool("m"), tool("z_read")], None)?;
        ensure_eq!(live.tools()?, second);
        ensure_eq!(names(&second.tools), ["m", "z_read"]);
        ensure!(second.digest != first.digest);
        let none = store.set_tools(live.id(), Vec::new(), None)?;
        ensure_eq!((live.tools()?.tools, none.digest), (Vec::new(), live.tools()?.digest));
        ensure_eq!(live.set_tools(first.tools.clone(), None)?.digest, first.digest);
    }

    /// What can't be kept is refused by name, and the list before it stays.
    fn tools_that_can_not_be_are_refused(store) {
        let live = thread_with(store, &["x"])?;
        let before = live.set_tools(vec![tool("kept")], None)?;
        match live.set_tools(vec![tool("a"), tool("b"), tool("a")], None) {
            Err(Error::AlreadyExists { what: "tool", id }) => ensure_eq!(id, "a"),
            other => ensure_eq!(format!("{other:?}"), "a tool that is there already"),
        }
        let large = format!("\"{}\"", "x".repeat(2 << 20));
        let bad = [
            tool(""),
            tool("a\0b"),
            tool(&"x".repeat(257)),
            Tool::new("bad_one", "{"),
            Tool::new("bad_one", ""),
            Tool::new("bad_one", large.as_str()),
            Tool { extra: Some("NaN".to_owned()), ..tool("bad_one") },
            Tool { description: Some("\0".to_owned()), ..tool("bad_one") },
        ];
        for bad in bad {
            match live.set_tools(vec![tool("good"), bad.clone()], None) {
                Err(Error::Invalid { field: "tools", reason }) => {
                    ensure!(reason.contains("tool 1") && (!bad.name.starts_with("bad") || reason.contains("bad_one")));
                }
                other => ensure_eq!(format!("{other:?}"), format!("invalid: {}", bad.name)),
            }
        }
        let heavy: Vec<Tool> = (0..20).map(|number| Tool::new(number.to_string(), format!("\"{}\"", "x".repeat(1_000_000)))).collect();
        ensure_err!(live.set_tools(heavy, None), Error::Invalid { field: "tools", .. });
        let many = (0..5_000).map(|number| tool(&number.to_string())).collect();
        ensure_err!(live.set_tools(many, None), Error::Invalid { field: "tools", .. });
        ensure_eq!(live.tools()?, before);
    }

    /// The same list again changes nothing, not even the thread's tick.
    fn the_same_tools_again_change_nothing(store) {
        let live = thread_with(store, &["x"])?;
        let list = vec![tool("a"), tool("b")];
        let set = live.set_tools(list.clone(), None)?;
        let before = store.get(live.id())?;
        ensure_eq!(live.set_tools(list.clone(), None)?, set);
        ensure_eq!(store.set_tools(live.id(), list.clone(), None)?, set);
        ensure_eq!(store.set_tools(live.id(), list, Some(Hash::of(b"another")))?, set);
        ensure_eq!(store.get(live.id())?.tick, before.tick);
        ensure_eq!(store.get(live.id())?.updated_at, before.updated_at);
        store.set_tools(live.id(), vec![tool("b"), tool("a")], None)?;
        ensure!(store.get(live.id())?.tick > before.tick);
    }

    /// Who expects another list than there is overwrites nothing.
    fn tools_are_compared(store) {
        let live = thread_with(store, &["x"])?;
        let none = store.tools(live.id())?.digest;
        let one = store.set_tools(live.id(), vec![tool("one")], Some(none))?;
        ensure_err!(store.set_tools(live.id(), vec![tool("two")], Some(none)), Error::Conflict { what: "tools", .. });
        ensure_eq!(store.tools(live.id())?, one);
        let two = live.set_tools(vec![tool("two")], Some(one.digest))?;
        // A repeated call finds what it has done.
        ensure_eq!(live.set_tools(vec![tool("two")], Some(one.digest))?, two);
    }

    /// Tools need their thread, and are not seen through another workspace.
    fn tools_need_their_thread(store) {
        let missing = ThreadId::new("missing-thread")?;
        ensure_err!(store.tools(&missing), Error::NotFound { what: "thread", .. });
        ensure_err!(store.set_tools(&missing, Vec::new(), None), Error::NotFound { what: "thread", .. });
        ensure_err!(store.set_tools(&missing, vec![tool("a")], None), Error::NotFound { what: "thread", .. });
        let live = thread_with(store, &["x"])?;
        live.set_tools(vec![tool("a")], None)?;
        let other = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(other.tools(live.id()), Error::NotFound { what: "thread", .. });
        ensure_err!(other.set_tools(live.id(), Vec::new(), None), Error::NotFound { what: "thread", .. });
        ensure_eq!(store.tools(live.id())?.tools.len(), 1);
    }

    /// A holder that was fenced off sets no tools, also not those that there are; one that has stored nothing yet stores its thread.
    fn a_fenced_off_holder_sets_no_tools(store) {
        let live = thread_with(store, &["x"])?;
        live.set_tools(vec![tool("a")], None)?;
        let taken = store.take_over(live.id(), "it hangs", false)?;
        ensure_err!(live.set_tools(vec![tool("b")], None), Error::ClaimLost { .. });
        ensure_err!(live.set_tools(vec![tool("a")], None), Error::ClaimLost { .. } | Error::Closed { .. });
        ensure_eq!(names(&taken.tools()?.tools), ["a"]);
        let new = super::workspace(store)?.create(NewThread::default())?;
        new.set_tools(vec![tool("first")], None)?;
        ensure_eq!(names(&store.tools(new.id())?.tools), ["first"]);
        new.append(vec![say("y")])?;
    }

    /// A purge takes the tools of the thread.
    fn a_purge_takes_the_tools(store) {
        let live = thread_with(store, &["x"])?;
        let id = live.id().clone();
        live.set_tools(vec![tool("a")], None)?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        ensure_err!(store.tools(&id), Error::NotFound { what: "thread", .. });
        let again = super::workspace(store)?.create_now(NewThread { id: Some(id), ..NewThread::default() })?;
        ensure_eq!(again.tools()?.tools, Vec::new());
    }
}
