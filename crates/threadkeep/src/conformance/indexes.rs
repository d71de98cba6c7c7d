//! What every engine's search index does, as the layer above it counts on; and that any two give the same answers.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use super::{Broken, Outcome, ensure, ensure_eq};
use crate::concurrency::{Mutex, block_on};
use crate::db::fts::SqliteIndex;
use crate::db::index::{Batch, Behind, Changed, Document, Expr, Fit, Index, Progress, Subject, Terms};
use crate::error::{Error, Result};
use crate::{NewItem, NewThread, Role, Store, StoreOptions};

/// Far more than there are.
const ALL: usize = 1_000_000;
const NONE: [i64; 0] = [];

/// An index that nobody else uses, and the store beside it.
#[derive(Debug)]
pub struct Probe {
    store: Store,
    index: Arc<dyn Index>,
    /// What was added, to be added again where it went with what was taken out.
    added: Mutex<BTreeMap<Subject, Document>>,
}

type Check = fn(&Probe) -> Outcome;

/// Something that an index does.
#[derive(Debug, Clone, Copy)]
pub struct IndexClause {
    /// Its name.
    pub name: &'static str,
    /// Checks it on an index that is empty, beside a store that is.
    pub check: Check,
}

impl Probe {
    /// The index of a store in memory.
    ///
    /// # Errors
    /// As opening a store.
    pub fn in_memory() -> Result<Self> {
        Ok(Self::of(block_on(Store::open(StoreOptions::memory()))?, Arc::new(SqliteIndex::in_memory())))
    }

    /// The index of the store on a server, which is made if it is not there.
    ///
    /// # Errors
    /// As opening a store.
    #[cfg(feature = "postgres")]
    pub fn on_server(options: StoreOptions) -> Result<Self> {
        let nowhere = || Error::invalid("address", "it is of no server");
        let index = crate::db::postgres::index_at(options.opening().ok_or_else(nowhere)?)?;
        Ok(Self::of(block_on(Store::open(options))?, Arc::new(index)))
    }

    fn of(store: Store, index: Arc<dyn Index>) -> Self {
        Self { store, index, added: Mutex::default() }
    }

    /// Adds documents of these main streams, one after the other, a thousand at a time.
    ///
    /// # Errors
    /// As a change of the index.
    pub fn fill(&self, streams: impl Iterator<Item = String>) -> Outcome {
        let mut streams = streams.peekable();
        while streams.peek().is_some() {
            let top = self.index.standing()?.top;
            let documents =
                (top + 1..).zip(streams.by_ref().take(1_000)).map(|(key, words)| item(key, &words, "", "x:all"));
            self.change(Batch { added: documents.collect(), ..Batch::default() })?;
        }
        Ok(())
    }

    /// The numbers of the newest documents that have these words one after the other.
    ///
    /// # Errors
    /// As asking the index.
    pub fn find_phrase(&self, words: &str, is_prefix: bool, most: usize) -> Result<Vec<i64>> {
        let words = words.split(' ').map(str::to_owned).collect();
        let fits = self.index.find(&Expr::Phrase { words, parts: Vec::new(), is_prefix }, i64::MAX, most)?;
        Ok(fits.into_iter().map(|fit| fit.number).collect())
    }

    /// Takes everything out.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for who may only read.
    pub fn clear(&self) -> Result<()> {
        self.index.clear()
    }

    /// Whether a change of nothing was made.
    ///
    /// # Errors
    /// As a change of the index.
    pub fn touch(&self) -> Result<bool> {
        Ok(self.index.change(self.index.standing()?.generation, &Batch::default())? == Changed::Yes)
    }

    fn change(&self, batch: Batch) -> Outcome {
        let generation = self.index.standing()?.generation;
        ensure_eq!(self.index.change(generation, &batch)?, Changed::Yes);
        let added = batch.added.into_iter().map(|document| (document.subject.clone(), document));
        self.added.lock().unwrap_or_else(PoisonError::into_inner).extend(added);
        Ok(())
    }

    fn add(&self, added: Vec<Document>) -> Outcome {
        self.change(Batch { added, ..Batch::default() })
    }

    fn numbers(&self, expr: &Expr) -> Result<Vec<i64>> {
        Ok(self.index.find(expr, i64::MAX, ALL)?.into_iter().map(|fit| fit.number).collect())
    }

    fn behind(&self, since: Option<i64>, most: usize) -> Result<Vec<Behind>> {
        let index = Arc::clone(&self.index);
        block_on(self.store.inner.db.read(move |tx| index.behind(tx, since, most)))
    }

    /// Adds again what went with what was taken out.
    fn refill(&self) -> Outcome {
        let missing = self.index.missing(ALL)?;
        let known = self.added.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let again = missing.iter().filter_map(|(number, subject)| {
            known.get(subject).map(|document| Document { number: Some(*number), ..document.clone() })
        });
        let added: Vec<Document> = again.collect();
        ensure_eq!(added.len(), missing.len());
        self.change(Batch { added, ..Batch::default() })?;
        ensure_eq!(self.index.missing(ALL)?, []);
        Ok(())
    }
}

/// All of them.
pub fn index_clauses() -> Vec<IndexClause> {
    let list: [(&'static str, Check); 12] = [
        ("numbers_are_dense_and_generations_change", numbers_are_dense_and_generations_change),
        ("another_generation_changes_nothing", another_generation_changes_nothing),
        ("the_newest_come_first", the_newest_come_first),
        ("phrases_keep_to_their_stream", phrases_keep_to_their_stream),
        ("beginnings_are_found", beginnings_are_found),
        ("expressions_are_boolean", expressions_are_boolean),
        ("what_is_forgotten_is_gone", what_is_forgotten_is_gone),
        ("titles_are_documents", titles_are_documents),
        ("long_documents_lose_no_hit", long_documents_lose_no_hit),
        ("long_tags_are_told_apart", long_tags_are_told_apart),
        ("branches_that_are_behind_are_told", branches_that_are_behind_are_told),
        ("clearing_takes_everything_out", clearing_takes_everything_out),
    ];
    list.into_iter().map(|(name, check)| IndexClause { name, check }).collect()
}

fn numbers_are_dense_and_generations_change(probe: &Probe) -> Outcome {
    let first = probe.index.standing()?;
    ensure_eq!((first.top, first.records), (0, 0));
    probe.add(vec![item(7, "one", "", "x:all"), item(3, "two", "", "x:all")])?;
    let second = probe.index.standing()?;
    ensure_eq!(second.top, 2);
    ensure!(second.generation != first.generation);
    probe.change(Batch { records: Some(9), added: vec![item(9, "three", "", "x:all")], ..Batch::default() })?;
    let third = probe.index.standing()?;
    ensure_eq!((third.top, third.records), (3, 9));
    ensure_eq!(probe.numbers(&tag("x:all"))?, [3, 2, 1]);
    probe.change(Batch::default())?;
    ensure_eq!(probe.index.standing()?.records, 9);
    ensure!(probe.index.bytes()? < 1 << 30);
    ensure_eq!(probe.index.erase()?, Vec::<String>::new());
    Ok(())
}

fn another_generation_changes_nothing(probe: &Probe) -> Outcome {
    let before = probe.index.standing()?;
    probe.add(vec![item(1, "one", "", "x:all")])?;
    let batch = Batch { added: vec![item(2, "two", "", "x:all")], ..Batch::default() };
    ensure_eq!(probe.index.change(before.generation, &batch)?, Changed::Busy);
    ensure_eq!(probe.numbers(&tag("x:all"))?, [1]);
    Ok(())
}

fn the_newest_come_first(probe: &Probe) -> Outcome {
    let words = |number: i64| if number % 3 == 0 { "fizz" } else { "other" };
    probe.fill((1..=9_000).map(|number| words(number).to_owned()))?;
    let fizz = word("fizz");
    let all = probe.numbers(&fizz)?;
    ensure_eq!(all, (1..=3_000).rev().map(|it| it * 3).collect::<Vec<i64>>());
    for (upto, most) in [(i64::MAX, 5), (9_000, 2_999), (8_998, 5), (8_192, 1_400), (4_096, 7), (3, 5), (2, 5), (0, 5)]
    {
        let fits = probe.index.find(&fizz, upto, most)?;
        let expected: Vec<i64> = all.iter().copied().filter(|number| *number <= upto).take(most).collect();
        ensure_eq!(fits.iter().map(|fit| fit.number).collect::<Vec<_>>(), expected);
        ensure!(fits.iter().all(|fit| fit.subject == Subject::Item(fit.number) && !fit.is_doubtful));
    }
    ensure_eq!(probe.index.find(&fizz, 9_000, 0)?, []);
    Ok(())
}

fn phrases_keep_to_their_stream(probe: &Probe) -> Outcome {
    probe.add(vec![
        item(1, "parse http request", "", "x:all"),
        item(2, "parsehttprequest", "parse http request", "x:all"),
        item(3, "parse _ http request", "", "x:all"),
        item(4, "http parse request", "request _ http", "x:all"),
        item(5, "日 本 語", "", "x:all"),
    ])?;
    let both = |text: &str| phrase(text, text, false);
    ensure_eq!(probe.numbers(&both("parse http request"))?, [2, 1]);
    ensure_eq!(probe.numbers(&both("http request"))?, [3, 2, 1]);
    ensure_eq!(probe.numbers(&phrase("http request", "", false))?, [3, 1]);
    ensure_eq!(probe.numbers(&phrase("", "http request", false))?, [2]);
    ensure_eq!(probe.numbers(&both("request http"))?, NONE);
    ensure_eq!(probe.numbers(&both("本 語"))?, [5]);
    ensure_eq!(probe.numbers(&both("日 語"))?, NONE);
    ensure_eq!(probe.numbers(&phrase("", "", false))?, NONE);
    Ok(())
}

fn beginnings_are_found(probe: &Probe) -> Outcome {
    probe.add(vec![
        item(1, "read the reader", "", "x:all"),
        item(2, "the re", "", "x:all"),
        item(3, "the wreader", "re", "x:all"),
    ])?;
    let begin = |text: &str| phrase(text, text, true);
    ensure_eq!(probe.numbers(&begin("read"))?, [1]);
    ensure_eq!(probe.numbers(&begin("re"))?, [3, 2, 1]);
    ensure_eq!(probe.numbers(&begin("the re"))?, [2, 1]);
    ensure_eq!(probe.numbers(&begin("the rea"))?, [1]);
    ensure_eq!(probe.numbers(&begin("x"))?, NONE);
    Ok(())
}

fn expressions_are_boolean(probe: &Probe) -> Outcome {
    probe.add(vec![
        item(1, "a b c", "", "x:all r:user"),
        item(2, "a c b", "", "x:all r:user"),
        item(3, "b", "", "x:all r:tool"),
        item(4, "c", "", "x:all"),
    ])?;
    let all = Expr::All(vec![word("a"), tag("r:user")]);
    let any = Expr::Any(vec![word("a"), tag("r:tool"), word("nowhere")]);
    ensure_eq!(probe.numbers(&all)?, [2, 1]);
    ensure_eq!(probe.numbers(&any)?, [3, 2, 1]);
    ensure_eq!(probe.numbers(&without(tag("x:all"), any.clone()))?, [4]);
    ensure_eq!(probe.numbers(&without(all.clone(), phrase("a b", "", false)))?, [2]);
    ensure_eq!(probe.numbers(&without(any, Expr::Any(Vec::new())))?, [3, 2, 1]);
    ensure_eq!(probe.numbers(&without(tag("x:all"), without(tag("x:all"), word("a"))))?, [2, 1]);
    ensure_eq!(probe.numbers(&Expr::All(vec![all, Expr::Any(Vec::new())]))?, NONE);
    let many = Expr::Any((0..5_000).map(|number| tag(&format!("b:{number}"))).chain([tag("r:tool")]).collect());
    ensure_eq!(probe.numbers(&many)?, [3]);
    let long: Vec<String> = (0..256).map(|number| format!("w{number}")).collect();
    probe.add(vec![item(5, &long.join(" "), "", "x:all")])?;
    ensure_eq!(probe.numbers(&phrase(&long.join(" "), "", false))?, [5]);
    Ok(())
}

fn what_is_forgotten_is_gone(probe: &Probe) -> Outcome {
    probe.add((1..=10).map(|key| item(key, "word", "", "x:all")).collect())?;
    let again =
        Batch { forgotten: vec![(2, 2), (5, 7)], added: vec![item(6, "other", "", "x:all")], ..Batch::default() };
    probe.change(again)?;
    probe.refill()?;
    ensure_eq!(probe.numbers(&word("word"))?, [10, 9, 8, 4, 3, 1]);
    let fits = probe.index.find(&word("other"), i64::MAX, ALL)?;
    ensure_eq!(fits, [Fit { number: 11, subject: Subject::Item(6), is_doubtful: false }]);
    ensure_eq!(probe.index.standing()?.top, 11);
    Ok(())
}

fn titles_are_documents(probe: &Probe) -> Outcome {
    let title = |thread: &str, words: &str, stamp| Document {
        stamp,
        ..document(Subject::Title(thread.to_owned()), words, "", "x:all x:title")
    };
    probe.add(vec![title("b", "one two", 5), title("a", "two", -6), item(1, "two", "", "x:all")])?;
    let mut titles = probe.index.titles()?;
    titles.sort();
    ensure_eq!(titles, [("a".to_owned(), -6), ("b".to_owned(), 5)]);
    let fits = probe.index.find(&Expr::All(vec![word("two"), tag("x:title")]), i64::MAX, ALL)?;
    ensure_eq!(
        fits.into_iter().map(|fit| fit.subject).collect::<Vec<_>>(),
        [Subject::Title("a".to_owned()), Subject::Title("b".to_owned())]
    );
    let forgotten_titles = vec!["b".to_owned()];
    probe.change(Batch { forgotten_titles, added: vec![title("b", "three", 7)], ..Batch::default() })?;
    probe.refill()?;
    ensure_eq!(probe.numbers(&word("one"))?, NONE);
    ensure_eq!(probe.numbers(&word("three"))?, [4]);
    let mut titles = probe.index.titles()?;
    titles.sort();
    ensure_eq!(titles, [("a".to_owned(), -6), ("b".to_owned(), 7)]);
    let stamps = [probe.index.title_stamp("a")?, probe.index.title_stamp("b")?, probe.index.title_stamp("c")?];
    ensure_eq!(stamps, [Some(-6), Some(7), None]);
    Ok(())
}

/// A phrase is found wherever it stands, if only as one that may be there; and what can't be there is not found.
fn long_documents_lose_no_hit(probe: &Probe) -> Outcome {
    let filler = |count: usize| (0..count).map(|number| format!("f{number}")).collect::<Vec<_>>().join(" ");
    let far = format!("{} far away end", filler(20_000));
    let often = format!("{} often seen", "often said ".repeat(400));
    let huge: String = (0..32_000).map(|number| format!("w{number}x ")).collect();
    probe.add(vec![
        item(1, &far, &far, "x:all"),
        item(2, &often, "", "x:all"),
        item(3, &format!("{} last words", huge.trim_end()), &huge, "x:all"),
        item(4, "far _ away said often", "", "x:all"),
    ])?;
    for (text, number) in [("far away", 1), ("away end", 1), ("often seen", 2), ("w7x w8x", 3), ("last words", 3)] {
        ensure_eq!(probe.numbers(&phrase(text, "", false))?, [number]);
        ensure_eq!(probe.numbers(&phrase(&text[..text.len() - 1], "", true))?, [number]);
    }
    ensure_eq!(probe.numbers(&phrase("", "away end", false))?, [1]);
    ensure_eq!(probe.numbers(&phrase("said often", "", false))?, [4, 2]);
    // What only may stand there takes nothing away for certain.
    for text in ["seen often", "far end", "f1 f3"] {
        let fits = probe.index.find(&without(tag("x:all"), phrase(text, "", false)), i64::MAX, ALL)?;
        ensure_eq!(fits.iter().map(|fit| fit.number).collect::<Vec<_>>(), [4, 3, 2, 1]);
    }
    let fits = probe.index.find(&phrase("f1 f3", "", false), i64::MAX, ALL)?;
    ensure!(fits.iter().all(|fit| fit.is_doubtful));
    let certain = probe.index.find(&phrase("f1 f2", "", false), i64::MAX, ALL)?;
    ensure_eq!(certain.iter().map(|fit| (fit.number, fit.is_doubtful)).collect::<Vec<_>>(), [(1, false)]);
    Ok(())
}

fn long_tags_are_told_apart(probe: &Probe) -> Outcome {
    let long = "t".repeat(3_000);
    let (one, other) = (format!("t:{long}a"), format!("t:{long}b"));
    probe.add(vec![item(1, "a", "", &one), item(2, "a", "", &other)])?;
    ensure_eq!(probe.numbers(&tag(&one))?, [1]);
    ensure_eq!(probe.numbers(&tag(&other))?, [2]);
    ensure_eq!(probe.numbers(&tag(&format!("t:{long}")))?, NONE);
    Ok(())
}

fn branches_that_are_behind_are_told(probe: &Probe) -> Outcome {
    ensure_eq!(probe.behind(None, ALL)?, []);
    let store = &probe.store;
    let live = block_on(async { store.workspace("/w".as_ref()).await?.create_now(NewThread::default()).await })?;
    let say = |text: &str| vec![NewItem::message(Role::User, text)];
    block_on(live.append(say("one")))?;
    let second = block_on(live.append(say("two")))?;
    let behind = probe.behind(None, ALL)?;
    ensure_eq!(behind.len(), 1);
    let Some(Behind { branch, is: None, tip: Some(tip) }) = behind.first().copied() else {
        return Err(Broken(format!("{behind:?}")));
    };
    ensure_eq!(tip, (branch << 32) + 1);
    let reached = |depth, hash| Batch { reached: vec![Progress { branch, depth, hash }], ..Batch::default() };
    let hash = second.items.first().map(|item| item.hash.0).unwrap_or_default();
    probe.change(reached(0, [1; 32]))?;
    ensure_eq!(
        probe.behind(None, ALL)?,
        [Behind { branch, is: Some(Progress { branch, depth: 0, hash: [1; 32] }), tip: Some(tip) }]
    );
    probe.change(reached(1, [1; 32]))?;
    ensure_eq!(probe.behind(None, ALL)?.len(), 1);
    probe.change(reached(1, hash))?;
    ensure_eq!(probe.behind(None, ALL)?, []);
    ensure_eq!(probe.behind(Some(0), ALL)?, []);
    // Further than the store.
    probe.change(reached(2, hash))?;
    ensure_eq!(probe.behind(None, ALL)?.len(), 1);
    ensure_eq!(probe.behind(Some(0), ALL)?.len(), 1);
    ensure_eq!(probe.behind(Some(i64::MAX), ALL)?, []);
    probe.change(reached(1, hash))?;
    // The branch that is left keeps its tip, and the new one is behind.
    let root = block_on(store.address_at(live.id(), 0))?;
    block_on(live.rewind(root))?;
    ensure_eq!(probe.behind(None, ALL)?, []);
    block_on(live.append(say("other")))?;
    let behind = probe.behind(None, ALL)?;
    ensure_eq!(behind.iter().map(|it| (it.branch == branch, it.is)).collect::<Vec<_>>(), [(false, None)]);
    let gone = Progress { branch: 900, depth: 3, hash };
    probe.change(Batch { reached: vec![gone], ..Batch::default() })?;
    ensure_eq!(probe.behind(None, ALL)?.last(), Some(&Behind { branch: 900, is: Some(gone), tip: None }));
    ensure_eq!(probe.behind(None, 1)?.len(), 1);
    probe.change(Batch { ended: vec![900], ..Batch::default() })?;
    ensure_eq!(probe.behind(None, ALL)?.len(), 1);
    Ok(())
}

fn clearing_takes_everything_out(probe: &Probe) -> Outcome {
    let progress = Progress { branch: 5, depth: 3, hash: [7; 32] };
    let added = vec![item(1, "one", "", "x:all")];
    probe.change(Batch { added, reached: vec![progress], records: Some(4), ..Batch::default() })?;
    let before = probe.index.standing()?;
    probe.index.clear()?;
    let after = probe.index.standing()?;
    ensure_eq!((after.top, after.records), (0, 0));
    ensure!(after.generation != before.generation);
    ensure_eq!(probe.numbers(&tag("x:all"))?, NONE);
    ensure_eq!(probe.behind(None, ALL)?, []);
    probe.add(vec![item(1, "one", "", "x:all")])?;
    ensure_eq!(probe.numbers(&word("one"))?, [1]);
    Ok(())
}

fn document(subject: Subject, words: &str, parts: &str, tags: &str) -> Document {
    let terms = Terms { words: words.to_owned(), parts: parts.to_owned(), tags: tags.to_owned() };
    Document { number: None, subject, terms, stamp: 0 }
}

fn item(key: i64, words: &str, parts: &str, tags: &str) -> Document {
    document(Subject::Item(key), words, parts, tags)
}

fn phrase(words: &str, parts: &str, is_prefix: bool) -> Expr {
    Expr::Phrase { words: terms(words), parts: terms(parts), is_prefix }
}

fn terms(text: &str) -> Vec<String> {
    text.split(' ').filter(|term| !term.is_empty()).map(str::to_owned).collect()
}

fn word(word: &str) -> Expr {
    phrase(word, word, false)
}

fn tag(tag: &str) -> Expr {
    Expr::Tag(tag.to_owned())
}

fn without(wanted: Expr, unwanted: Expr) -> Expr {
    Expr::Without(Box::new(wanted), Box::new(unwanted))
}

/// Random documents and random questions: every index finds what reading the documents finds, and says of the rest that it may
/// be there.
pub fn agree(seed: u64, probes: &[&Probe]) -> Outcome {
    let mut random = Random(seed | 1);
    let documents: Vec<Document> = (1..=200).map(|key| random.document(key)).collect();
    for part in documents.chunks(70) {
        for probe in probes {
            probe.add(part.to_vec())?;
        }
    }
    for _ in 0..300 {
        let expr = random.expr(3);
        let fitting = (1..).zip(&documents).filter(|(_, document)| holds(&expr, &document.terms));
        let mut expected: Vec<i64> = fitting.map(|(number, _)| number).collect();
        expected.reverse();
        for probe in probes {
            let fits = probe.index.find(&expr, i64::MAX, ALL)?;
            let certain: Vec<i64> = fits.iter().filter(|fit| !fit.is_doubtful).map(|fit| fit.number).collect();
            let verified: Vec<i64> = fits.iter().map(|fit| fit.number).filter(|it| expected.contains(it)).collect();
            let is_right = verified == expected && certain.iter().all(|number| expected.contains(number));
            if !is_right {
                let told = format!("seed {seed}, {:?}: {expr:?} finds {fits:?}, and reading {expected:?}", probe.index);
                return Err(Broken(told));
            }
        }
    }
    Ok(())
}

/// Whether an expression holds, by the terms.
fn holds(expr: &Expr, terms: &Terms) -> bool {
    match expr {
        Expr::Phrase { words, parts, is_prefix } => {
            stands(words, *is_prefix, &terms.words) || stands(parts, *is_prefix, &terms.parts)
        }
        Expr::Tag(tag) => terms.tags.split(' ').any(|it| it == tag),
        Expr::All(all) => all.iter().all(|expr| holds(expr, terms)),
        Expr::Any(any) => any.iter().any(|expr| holds(expr, terms)),
        Expr::Without(wanted, unwanted) => holds(wanted, terms) && !holds(unwanted, terms),
    }
}

fn stands(phrase: &[String], is_prefix: bool, stream: &str) -> bool {
    let stream: Vec<&str> = stream.split(' ').filter(|term| !term.is_empty()).collect();
    let Some((last, before)) = phrase.split_last() else { return false };
    stream.windows(phrase.len()).any(|window| {
        let fits = |term: &str| if is_prefix { term.starts_with(last.as_str()) } else { term == last };
        window.iter().zip(before).all(|(term, wanted)| term == wanted) && window.last().is_some_and(|term| fits(term))
    })
}

/// Few terms, so that they meet; some begin others.
const TERMS: [&str; 12] = ["a", "ab", "abc", "b", "ba", "c", "日", "本", "öl", "7", "🦀", "c++"];
const TAGS: [&str; 5] = ["x:all", "r:user", "r:tool", "t:mcp__git-hub", "d:2026-11-30"];

/// The same numbers for the same seed.
struct Random(u64);

impl Random {
    /// Below a bound, by xorshift.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % bound.max(1)
    }

    fn of(&mut self, list: &[&str]) -> String {
        let at = self.below(list.len());
        list[at].to_owned()
    }

    fn document(&mut self, key: i64) -> Document {
        // One of fifty is longer than a vector can tell.
        let len = if self.below(50) == 0 { 16_200 + self.below(600) } else { self.below(40) };
        let stream = |random: &mut Self, len| {
            let term = |random: &mut Self| if random.below(8) == 0 { "_".to_owned() } else { random.of(&TERMS) };
            (0..len).map(|_| term(random)).collect::<Vec<_>>().join(" ")
        };
        let words = stream(self, len);
        let parts_len = self.below(6);
        let parts = stream(self, parts_len);
        let more = self.of(&TAGS);
        item(key, &words, &parts, &format!("x:all {more}"))
    }

    fn expr(&mut self, depth: usize) -> Expr {
        match self.below(if depth == 0 { 4 } else { 8 }) {
            0 => Expr::Tag(self.of(&TAGS)),
            1..=3 => {
                let len = 1 + self.below(3);
                let words: Vec<String> = (0..len).map(|_| self.of(&TERMS)).collect();
                let parts = match self.below(3) {
                    0 => Vec::new(),
                    1 => words.clone(),
                    _ => (0..=self.below(2)).map(|_| self.of(&TERMS)).collect(),
                };
                Expr::Phrase { words, parts, is_prefix: self.below(3) == 0 }
            }
            4 | 5 => Expr::All((0..=self.below(3)).map(|_| self.expr(depth - 1)).collect()),
            6 => Expr::Any((0..self.below(4)).map(|_| self.expr(depth - 1)).collect()),
            _ => without(self.expr(depth - 1), self.expr(depth - 1)),
        }
    }
}
