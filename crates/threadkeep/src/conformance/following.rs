//! Following threads and the store.

use std::time::Duration;

use super::{Broken, ensure, ensure_eq, ensure_err, promises, say, text_of, thread_with};
use crate::blocking::{Follower, LiveThread};
use crate::concurrency::{block_on, thread};
use crate::error::Error;
use crate::{Address, AppendOptions, Changed, FollowEnd, NewThread, News, ThreadStore};

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(60);

/// What a follower says until it has nothing more to say, a word for each item and each step back.
fn heard(follower: &mut Follower) -> Result<Vec<String>, Broken> {
    let mut words = Vec::new();
    loop {
        match follower.next_within(Duration::ZERO)? {
            None => return Ok(words),
            Some(News::Items(items)) => words.extend(items.iter().map(text_of)),
            Some(News::Back { to }) => words.push(format!("back to {:?}", to.map(|to| to.depth))),
            Some(News::Ended(end)) => {
                words.push(format!("{end:?}"));
                return Ok(words);
            }
        }
    }
}

fn after(live: &LiveThread, at: Address, text: &str) -> Result<(), Error> {
    live.append_with(vec![say(text)], AppendOptions { after: Some(at), ..AppendOptions::default() }).map(drop)
}

promises! {
    /// A follower tells what is stored, oldest first, once; first what was there, then what comes, and nothing when there is nothing.
    fn a_follower_tells_each_item_once(store) {
        let live = thread_with(store, &["a", "b"])?;
        let mut follower = store.follow(live.id(), None)?;
        ensure_eq!(heard(&mut follower)?, ["a", "b"]);
        ensure_eq!(follower.next_within(Duration::ZERO)?, None);
        live.append(vec![say("c"), say("d")])?;
        ensure_eq!(heard(&mut follower)?, ["c", "d"]);
        ensure_eq!(follower.at(), live.head()?);
        // Longer than what is told at a time.
        live.append((0..600).map(|number| say(&number.to_string())).collect())?;
        ensure_eq!(heard(&mut follower)?, (0..600).map(|number| number.to_string()).collect::<Vec<_>>());
        let mut late = store.follow(live.id(), live.head()?)?;
        ensure_eq!(late.next_within(Duration::ZERO)?, None);
        live.append(vec![say("e")])?;
        ensure_eq!(heard(&mut late)?, ["e"]);
    }

    /// A follower that waits is woken by what is acknowledged, however it waits.
    fn a_follower_that_waits_is_woken(store) {
        let live = thread_with(store, &["a"])?;
        let other = thread_with(store, &["x"])?;
        let mut follower = store.follow(live.id(), live.head()?)?;
        for number in 0..20 {
            let writer = (live.clone(), other.clone());
            let writes = thread::spawn(move || {
                writer.1.append(vec![say("y")])?;
                writer.0.append(vec![say(&number.to_string())])
            });
            let news = if number % 2 == 0 { follower.next()? } else { follower.next_within(LONG)?.unwrap_or(News::Back { to: None }) };
            let News::Items(items) = news else { return Err(Broken(format!("{news:?}"))) };
            ensure_eq!(items.iter().map(text_of).collect::<Vec<_>>(), [number.to_string()]);
            ensure!(writes.join().is_ok_and(|written| written.is_ok()));
        }
    }

    /// A head that moves elsewhere is told as a way back to what still counts, and then what stands on the new path.
    fn a_moved_head_is_told_as_a_way_back(store) {
        let live = thread_with(store, &["a", "b", "c", "d"])?;
        let mut follower = store.follow(live.id(), None)?;
        let at = |depth| store.address_at(live.id(), depth);
        let (b, c) = (at(1)?, at(2)?);
        heard(&mut follower)?;
        live.rewind(b)?;
        ensure_eq!(heard(&mut follower)?, ["back to Some(1)"]);
        live.append(vec![say("C")])?;
        ensure_eq!(heard(&mut follower)?, ["C"]);
        // Both steps before it looks: it sees one way back and the rest of the path.
        after(&live, c, "D")?;
        ensure_eq!(heard(&mut follower)?, ["back to Some(1)", "c", "D"]);
        live.rewind(b)?;
        live.rewind(c)?;
        ensure_eq!(heard(&mut follower)?, ["back to Some(2)"]);
        live.clear()?;
        ensure_eq!(heard(&mut follower)?, ["back to None"]);
        live.append(vec![say("z")])?;
        ensure_eq!(heard(&mut follower)?, ["z"]);
        live.clear()?;
        live.append(vec![say("y")])?;
        ensure_eq!(heard(&mut follower)?, ["back to None", "y"]);
        // To begin beside the path.
        let mut beside = store.follow(live.id(), Some(c))?;
        ensure_eq!(heard(&mut beside)?, ["back to None", "y"]);
    }

    /// A fork is followed over what it shares with its parent, and not what its parent goes on with.
    fn a_fork_is_followed_apart_from_its_parent(store) {
        let parent = thread_with(store, &["a", "b", "c"])?;
        let fork = store.fork(parent.id(), Some(store.address_at(parent.id(), 1)?), NewThread::default())?;
        let mut follower = store.follow(&fork.id, None)?;
        ensure_eq!(heard(&mut follower)?, ["a", "b"]);
        parent.append(vec![say("d")])?;
        ensure_eq!(heard(&mut follower)?, Vec::<String>::new());
        let live = store.resume(&fork.id, false)?;
        live.append(vec![say("B")])?;
        ensure_eq!(heard(&mut follower)?, ["B"]);
        live.rewind(store.address_at(&fork.id, 0)?)?;
        ensure_eq!(heard(&mut follower)?, ["back to Some(0)"]);
    }

    /// The trash and a purge end it, after what was there to tell, and wake who waits; it says so again when it is asked again.
    fn the_end_of_a_thread_ends_its_followers(store) {
        let live = thread_with(store, &["a"])?;
        let id = live.id().clone();
        let (mut slow, mut quick) = (store.follow(&id, None)?, store.follow(&id, live.head()?)?);
        live.shutdown()?;
        let waits = thread::spawn(move || quick.next());
        store.archive(&id)?;
        store.unarchive(&id)?;
        store.delete(&id)?;
        ensure!(matches!(waits.join(), Ok(Ok(News::Ended(FollowEnd::Trashed)))));
        ensure_eq!(heard(&mut slow)?, ["a", "Trashed"]);
        ensure_eq!(heard(&mut slow)?, ["Trashed"]);
        let mut last = store.follow(&id, None)?;
        store.purge(&id)?;
        ensure_eq!(heard(&mut last)?, ["Gone"]);
        ensure_eq!(heard(&mut slow)?, ["Trashed"]);
        ensure_err!(store.follow(&id, None), Error::NotFound { what: "thread", .. });
        // Made anew under its name, it is another.
        let again = super::workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() })?;
        again.append(vec![say("b")])?;
        ensure_eq!(heard(&mut last)?, ["Gone"]);
        ensure_eq!(heard(&mut store.follow(&id, None)?)?, ["b"]);
    }

    /// What is not there, or not visible, can't be followed.
    fn only_what_is_visible_is_followed(store) {
        let (live, other) = (thread_with(store, &["a"])?, thread_with(store, &["b"])?);
        ensure_err!(store.follow(live.id(), other.head()?), Error::NotFound { what: "item", .. });
        ensure_err!(store.follow(&crate::ThreadId::new("nobody")?, None), Error::NotFound { what: "thread", .. });
        let elsewhere = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(elsewhere.follow(live.id(), None), Error::NotFound { what: "thread", .. });
        let mut follower = super::workspace(store)?.follow(live.id(), None)?;
        ensure_eq!(heard(&mut follower)?, ["a"]);
        store.remap(super::workspace(store)?.info().id, elsewhere.info().id)?;
        ensure_eq!(heard(&mut follower)?, ["Gone"]);
    }

    /// A watch names the threads that change, and says nothing while nothing does.
    fn a_watch_says_what_changes(store) {
        let live = thread_with(store, &["a"])?;
        let mut watch = store.watch()?;
        let names = |changed: Changed| match changed {
            Changed::Threads(threads) => threads.contains(live.id()),
            Changed::Anything => true,
        };
        for number in 0..5 {
            live.append(vec![say(&number.to_string())])?;
            // A watch that has just begun may have more to say.
            while !names(watch.next()) {}
        }
        store.archive(live.id())?;
        while !names(watch.next_within(LONG).ok_or_else(|| Broken("an archived thread is not told".to_owned()))?) {}
    }

    /// A thread is followed through the object-safe contract.
    fn any_store_follows(store) {
        let live = thread_with(store, &["a"])?;
        let object: &dyn ThreadStore = store.as_async();
        let mut following = block_on(object.follow_thread(live.id(), None))?;
        let news = block_on(following.next())?;
        ensure!(matches!(&news, News::Items(items) if items.len() == 1 && text_of(&items[0]) == "a"));
        live.append(vec![say("b")])?;
        ensure!(matches!(block_on(following.next())?, News::Items(items) if items.len() == 1));
    }
}
