//! Many processes on one inbox and on the same requests, and processes that are killed: every message gives one prompt, every
//! request has one outcome, and every answer is used once, on both engines.
//!
//! A test starts this very binary again with a role in its environment; [`child_entry`] plays that role and says what it did,
//! a line at a time. `THREADKEEP_RACES` says how many requests, and how many messages, are raced for; 1,000 of each by default.
#![cfg(test)]

#[path = "postgres/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::Server;
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Answer, ArtifactKind, ArtifactQuery, ArtifactRelation, Effect, Error, ItemQuery, Message, MessageEnd, MessageId,
    MessageQuery, MessageState, NewArtifact, NewMessage, NewPrompt, NewRequest, NewThread, Principal, PromptAs,
    Request, RequestQuery, RequestState, StoreOptions, TakeInto, TakeMessage, ThreadId, UseAnswer, Uuid,
};

const ROLE: &str = "THREADKEEP_TEST_ROLE";
const PLACE: &str = "THREADKEEP_TEST_PLACE";
const NUMBER: &str = "THREADKEEP_TEST_NUMBER";
const FOLDER: &str = "THREADKEEP_TEST_FOLDER";
/// What a child's lines begin with; the test harness writes to the same stream.
const MARK: &str = "@@ ";
const PROCESSES: usize = 16;
/// So many processes race for each request, each in its way.
const RACERS: usize = 4;
/// How many messages all of them send under the same keys; the others are sent by one of them each.
const SHARED: usize = 12;
/// So many are sent before some are taken: an inbox has room for a thousand that wait.
const AT_ONCE: usize = 8;
/// So many of the processes take the thread from whoever holds it.
const SNATCHERS: usize = 2;
/// So many threads ask for what is raced for.
const ASKERS: usize = 8;
const KILLED: usize = 12;
/// How many prompts a process stores that is not killed.
const ASKED: usize = 10;
/// How many messages wait, and requests, while those who deal with them are killed.
const WAITING: usize = 60;
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(300);

/// Where a store is, and what keeps it there.
struct Ground {
    name: &'static str,
    place: String,
    _folder: Option<tempfile::TempDir>,
    _server: Option<Arc<Server>>,
}

/// A store of each engine.
fn grounds() -> Vec<Ground> {
    // Nothing here asks what a disk has kept.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = folder.path().join("store").to_str().unwrap().to_owned();
    let mut grounds = vec![Ground { name: "SQLite", place, _folder: Some(folder), _server: None }];
    if let Some(server) = server::server() {
        let place = server.address();
        grounds.push(Ground { name: "PostgreSQL", place, _folder: None, _server: Some(server) });
    }
    grounds
}

fn open(place: &str) -> Store {
    let options = match place.starts_with("postgres") {
        true => StoreOptions::postgres(place).unwrap(),
        false => StoreOptions::folder(Path::new(place)),
    };
    Store::open(options.busy_bound(HANG)).unwrap()
}

fn thread() -> ThreadId {
    ThreadId::new("shared").unwrap()
}

fn create(store: &Store) -> LiveThread {
    let new = NewThread { id: Some(thread()), ..NewThread::default() };
    store.workspace(Path::new("/w")).unwrap().create_now(new).unwrap()
}

fn races() -> usize {
    std::env::var("THREADKEEP_RACES").map_or(1_000, |races| races.parse().unwrap())
}

/// How many messages each process sends under keys of its own.
fn own() -> usize {
    races().saturating_sub(SHARED).div_ceil(PROCESSES)
}

/// Asks for the approval of a call. Of some the time is over when the race begins, of others while it goes on.
fn ask(place: &Workspace, number: usize) {
    let expires_in = match number % 5 {
        0 => Some(Duration::ZERO),
        1 => Some(Duration::from_millis(1_500 + 2 * number as u64)),
        _ => None,
    };
    place.ask_request(NewRequest { expires_in, ..NewRequest::approval("race", &number.to_le_bytes()) }).unwrap();
}

/// What a child does; without a role this is no test and passes.
#[test]
fn child_entry() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let store = open(&std::env::var(PLACE).unwrap());
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    say("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    match role.as_str() {
        "race" => play_racer(&store, number),
        "send-and-take" => play_sender(&store, number),
        "take" => play_taker(&store),
        "answer" => play_answerer(&store),
        "ask" => play_asker(&store),
        other => panic!("no such role: {other}"),
    }
    say("done");
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn all_requests(store: &Store) -> Vec<Request> {
    let mut query = RequestQuery { ascending: true, limit: 1_000, ..RequestQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = store.requests(query.clone()).unwrap();
        found.extend(page.entries);
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

/// Whether it was done; refused it may only be by what others did.
fn won<T>(outcome: Result<T, Error>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(Error::Conflict { what: "request", .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// Races for every fourth request: answers it, from here or from elsewhere, cancels it, or finds that its time is over; then tries to
/// use the answer. Says what it won.
fn play_racer(store: &Store, number: usize) {
    let own = |index: usize| index % (PROCESSES / RACERS) == number % (PROCESSES / RACERS);
    let requests = all_requests(store);
    for (index, request) in requests.iter().enumerate().filter(|(index, _)| own(*index)) {
        // Who comes first differs from request to request.
        let part = (number / (PROCESSES / RACERS) + index / 7) % RACERS;
        let name = format!("racer {number}");
        let answer = |option: &str, by| Answer { option: option.to_owned(), by, note: None };
        if part == 1 {
            refuses_what_lasts(store, request, &name);
        }
        let resolved = match part {
            0 => won(store.answer_request(request.id, answer("allow_once", Principal::local(&name)))),
            1 => won(store.answer_request(request.id, answer("deny", Principal::remote(&name)))),
            2 => won(store.cancel_request(request.id, Principal::local(&name), None)),
            _ => {
                store.expire_requests().unwrap();
                won(store.answer_request(request.id, answer("allow_thread", Principal::remote(&name))))
            }
        };
        if resolved {
            say(&format!("resolved {}", request.id));
        }
        let using = UseAnswer { fingerprint: request.fingerprint, token: None };
        if won(store.use_answer(request.id, using)) {
            say(&format!("used {}", request.id));
        }
    }
}

/// Whoever is elsewhere grants nothing that lasts, whether the request waits or is over.
fn refuses_what_lasts(store: &Store, request: &Request, name: &str) {
    let answer = Answer { option: "allow_always".to_owned(), by: Principal::remote(name), note: None };
    match store.answer_request(request.id, answer) {
        Err(Error::Invalid { field: "option", .. } | Error::Conflict { what: "request", .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Sends its messages, and takes what there is whenever it gets the thread, until nothing waits and all that it took is acted on.
fn play_sender(store: &Store, number: usize) {
    let own = (0..own()).map(|own| format!("{number}-{own}"));
    let keys: Vec<String> = own.chain((0..SHARED).map(|shared| format!("shared-{shared}"))).collect();
    let mut unended = Vec::new();
    for keys in keys.chunks(AT_ONCE) {
        keys.iter().for_each(|key| send(store, number, key));
        take_some(store, number, &mut unended);
    }
    let waits = MessageQuery { state: Some(MessageState::Queued), limit: 1, ..MessageQuery::default() };
    // Whoever sends after this takes what it sent.
    while !unended.is_empty() || !store.messages(&thread(), waits.clone()).unwrap().entries.is_empty() {
        if !take_some(store, number, &mut unended) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Sends it twice: its sender was not told whether it was accepted.
fn send(store: &Store, number: usize, key: &str) {
    let message = NewMessage {
        key: Some(key.to_owned()),
        priority: i32::from(number.is_multiple_of(3)),
        ..NewMessage::text("a process", format!("message {key}"))
    };
    let ids = [(); 2].map(|()| store.inject_message(&thread(), message.clone()).unwrap().id);
    assert_eq!(ids[0], ids[1]);
}

/// Takes some messages, if it gets the thread, and ends them and those of which it was not told that they are ended. Another process
/// may take the thread away at any time.
fn take_some(store: &Store, number: usize, unended: &mut Vec<MessageId>) -> bool {
    let Some(live) = claim(store, number) else { return false };
    let lost = |error| match error {
        Error::ClaimLost { .. } | Error::Closed { .. } => {}
        error => panic!("{error:?}"),
    };
    let end = |unended: &mut Vec<MessageId>| -> Result<(), Error> {
        while let Some(id) = unended.last() {
            live.end_message(*id, MessageEnd::Acted { outcome: None })?;
            unended.pop();
        }
        Ok(())
    };
    let mut take = || {
        end(unended)?;
        for _ in 0..10 {
            let how = TakeMessage { into: TakeInto::NewTurn, past_unfinished: true, ..TakeMessage::default() };
            let Some(taken) = live.take_message(how)? else { break };
            say(&taken.message.id.to_string());
            unended.push(taken.message.id);
            end(unended)?;
        }
        live.shutdown()
    };
    take().unwrap_or_else(lost);
    true
}

/// The thread, unless another process holds it; some take it all the same.
fn claim(store: &Store, number: usize) -> Option<LiveThread> {
    match store.resume(&thread(), false) {
        Ok(live) => Some(live),
        Err(Error::ClaimHeld { .. }) if number < SNATCHERS => {
            Some(store.take_over(&thread(), "its messages are wanted", false).unwrap())
        }
        Err(Error::ClaimHeld { .. } | Error::Busy { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Takes message after message under tokens that it writes down first, and goes on with the token that the one before it left.
fn play_taker(store: &Store) {
    let note = Path::new(&std::env::var(FOLDER).unwrap()).join("token");
    let live = store.take_over(&thread(), "the one before was killed", false).unwrap();
    let take = |token: Uuid| {
        let how = TakeMessage {
            token: Some(token),
            into: TakeInto::NewTurn,
            past_unfinished: true,
            // Some as receipts: a message gives one of those, too.
            prompt: if token.as_u128().is_multiple_of(2) { PromptAs::Receipt { parent: None } } else { PromptAs::Item },
        };
        let Some(taken) = live.take_message(how).unwrap() else { return false };
        live.deliver_message(taken.message.id).unwrap();
        live.end_message(taken.message.id, MessageEnd::Acted { outcome: None }).unwrap();
        say(&taken.message.id.to_string());
        true
    };
    let mut next = std::fs::read_to_string(&note).map_or(0, |token| token.trim().parse::<u128>().unwrap_or(0));
    while take(Uuid::from_u128(next)) {
        next += 1;
        let fresh = note.with_extension("new");
        std::fs::write(&fresh, next.to_string()).unwrap();
        std::fs::rename(&fresh, &note).unwrap();
    }
}

/// Stores prompt after prompt, each with an artifact, and says which as soon as it is told that they are stored.
fn play_asker(store: &Store) {
    let live = store.take_over(&thread(), "the one before was killed", false).unwrap();
    let context = store.prompt_context(&thread(), None).unwrap();
    let mut last =
        context.map(|context| context.submitted.receipt).filter(|last| last.generation < 200).map(|it| it.id);
    for number in 0..ASKED {
        let text = format!("{} asks {number}", std::process::id());
        let raw = [text.as_bytes(), b"\xff"].concat();
        let new = last.map_or_else(|| NewPrompt::task(&text), |last| NewPrompt::continuing(last, &text));
        let prompt = live.begin_prompt(NewPrompt { raw, ..new }).unwrap().receipt.id;
        say(&format!("{prompt} {text}"));
        let artifact = NewArtifact::new(prompt, ArtifactKind::TurnOutcome, ArtifactRelation::Summarizes);
        say(&live.add_artifact(artifact).unwrap().artifact.id.to_string());
        last = Some(prompt);
    }
}

/// Answers every request that waits and uses every answer, and says so.
fn play_answerer(store: &Store) {
    for request in all_requests(store) {
        let by = Principal::local(std::process::id().to_string());
        let answer = Answer { option: "allow_once".to_owned(), by, note: None };
        if request.state == RequestState::Pending && won(store.answer_request(request.id, answer)) {
            say(&format!("answered {}", request.id));
        }
        let using = UseAnswer { fingerprint: request.fingerprint, token: None };
        if won(store.use_answer(request.id, using)) {
            say(&format!("used {}", request.id));
        }
    }
}

/// A child process; killed when it is dropped.
struct Worker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(role: &str, place: &str, number: usize, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(PLACE, place).env(NUMBER, number.to_string()).env(FOLDER, folder);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut worker = Self { process, output };
        assert_eq!(worker.hear().as_deref(), Some("ready"));
        worker
    }

    /// Lets it begin.
    fn go(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The next line that it says whole.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(MARK)
                && said.ends_with('\n')
            {
                return Some(said.trim_end().to_owned());
            }
            line.clear();
        }
        None
    }

    /// All that it says to its end.
    fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.hear()).collect()
    }

    /// What it says to its end, which must be a good one.
    fn finish(mut self) -> Vec<String> {
        let mut said = self.rest();
        let status = self.process.wait().unwrap();
        assert!(status.success() && said.pop().as_deref() == Some("done"), "a child ended with {status}");
        said
    }

    /// Kills it as soon as it has said so many lines; gives them, and what it said until it was dead.
    fn killed_after(mut self, lines: usize) -> Vec<String> {
        let mut said: Vec<String> = (0..lines).map_while(|_| self.hear()).collect();
        self.process.kill().unwrap();
        said.extend(self.rest());
        self.process.wait().unwrap();
        // On a busy machine it may have come to its end before.
        said.retain(|line| line != "done");
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts so many, lets all begin together, and gives what each said.
fn run_together(role: &str, place: &str) -> Vec<Vec<String>> {
    let start = |number| Worker::start(role, place, number, Path::new("."));
    let mut workers: Vec<Worker> = (0..PROCESSES).map(start).collect();
    workers.iter_mut().for_each(Worker::go);
    // Everybody is listened to, so that no pipe fills up.
    let listeners: Vec<_> = workers.into_iter().map(|worker| std::thread::spawn(|| worker.finish())).collect();
    listeners.into_iter().map(|listener| listener.join().unwrap()).collect()
}

/// Starts one after the other and kills each after a few more lines than the one before, until one comes to its end.
fn run_killed(role: &str, place: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for round in 0..KILLED {
        let mut worker = Worker::start(role, place, round, folder.path());
        worker.go();
        said.extend(worker.killed_after(round % 5));
    }
    let mut last = Worker::start(role, place, KILLED, folder.path());
    last.go();
    said.extend(last.finish());
    said
}

/// The prompts in the thread, by the message that each was.
fn prompts(store: &Store) -> BTreeMap<String, usize> {
    let mut query = ItemQuery { limit: 1_000, ..ItemQuery::default() };
    let mut found = BTreeMap::new();
    loop {
        let page = store.items(&thread(), query.clone()).unwrap();
        for message in page.entries.into_iter().filter_map(|item| item.source_id) {
            *found.entry(message.strip_prefix("inbox:").unwrap().to_owned()).or_default() += 1;
        }
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

fn all_messages(store: &Store) -> Vec<Message> {
    let mut query = MessageQuery { limit: 1_000, ..MessageQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = store.messages(&thread(), query.clone()).unwrap();
        found.extend(page.entries);
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

/// Every message that was sent was acted on and has one prompt.
fn assert_each_has_one_prompt(store: &Store, sent: usize, ground: &str) {
    let messages = all_messages(store);
    assert_eq!(messages.len(), sent, "{ground}");
    assert!(messages.iter().all(|message| message.state == MessageState::Acted), "{ground}");
    let prompts = prompts(store);
    assert!(prompts.values().all(|count| *count == 1), "{ground}: a message has two prompts");
    let named: BTreeSet<String> = messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(prompts.keys().cloned().collect::<BTreeSet<_>>(), named, "{ground}");
    assert!(store.verify(&thread()).unwrap().is_intact(), "{ground}");
}

#[test]
fn sixteen_processes_race_for_requests_and_each_has_one_outcome() {
    for ground in grounds() {
        let store = open(&ground.place);
        let place = store.workspace(Path::new("/w")).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for asker in 0..ASKERS {
                let place = &place;
                scope.spawn(move || (asker..races()).step_by(ASKERS).for_each(|number| ask(place, number)));
            }
        });
        let made = begun.elapsed();
        let said = run_together("race", &ground.place);
        let mut resolved: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        for (number, line) in
            said.iter().enumerate().flat_map(|(number, lines)| lines.iter().map(move |it| (number, it)))
        {
            match line.split_once(' ').unwrap() {
                ("resolved", id) => resolved.entry(id.to_owned()).or_default().push(number),
                ("used", id) => *used.entry(id.to_owned()).or_default() += 1,
                other => panic!("{other:?}"),
            }
        }
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for request in all_requests(&store) {
            let id = request.id.to_string();
            let winners = resolved.remove(&id).unwrap_or_default();
            let by = request.resolved_by.map(|by| by.name);
            *outcomes.entry(request.state.to_string()).or_default() += 1;
            match request.state {
                RequestState::Answered | RequestState::Cancelled => {
                    assert_eq!(winners.len(), 1, "{}: {id} was won by {winners:?}", ground.name);
                    assert_eq!(by, Some(format!("racer {}", winners[0])), "{}", ground.name);
                }
                RequestState::Expired => assert_eq!(winners, Vec::<usize>::new(), "{}: {id}", ground.name),
                other => panic!("{}: {id} is {other}", ground.name),
            }
            let uses = usize::from(request.state == RequestState::Answered);
            assert_eq!(used.remove(&id).unwrap_or(0), uses, "{}: the answer of {id}", ground.name);
            assert_eq!(request.consumed_at.is_some(), uses == 1, "{}: {id}", ground.name);
            let grants = request.answer.is_none_or(|answer| answer.effect != Effect::AllowAlways);
            assert!(grants, "{}: {id} grants what nobody granted", ground.name);
        }
        assert!(resolved.is_empty() && used.is_empty(), "{}", ground.name);
        assert_eq!(outcomes.values().sum::<usize>(), races(), "{}", ground.name);
        assert!(["answered", "cancelled", "expired"].iter().all(|state| outcomes.contains_key(*state)), "{outcomes:?}");
        println!("{}: {outcomes:?} in {:.1?} after {made:.1?}", ground.name, begun.elapsed() - made);
    }
}

#[test]
fn sixteen_processes_send_and_take_and_every_message_has_one_prompt() {
    for ground in grounds() {
        let store = open(&ground.place);
        create(&store).shutdown().unwrap();
        let begun = Instant::now();
        let took: Vec<String> = run_together("send-and-take", &ground.place).into_iter().flatten().collect();
        let sent = PROCESSES * own() + SHARED;
        assert_eq!(took.len(), sent, "{}", ground.name);
        assert_eq!(took.into_iter().collect::<BTreeSet<_>>().len(), sent, "{}: one was taken twice", ground.name);
        assert_each_has_one_prompt(&store, sent, ground.name);
        println!("{}: {sent} messages in {:.1?}", ground.name, begun.elapsed());
    }
}

#[test]
fn holders_that_are_killed_lose_no_message_and_write_no_prompt_twice() {
    for ground in grounds() {
        let store = open(&ground.place);
        create(&store).shutdown().unwrap();
        let sent: BTreeSet<MessageId> = (0..WAITING)
            .map(|number| store.inject_message(&thread(), NewMessage::text("a test", number.to_string())).unwrap().id)
            .collect();
        let said = run_killed("take", &ground.place);
        assert!(said.iter().all(|id| sent.contains(&id.parse().unwrap())), "{}", ground.name);
        assert_each_has_one_prompt(&store, WAITING, ground.name);
        assert_eq!(store.message_queue(&thread()).unwrap(), [], "{}", ground.name);
    }
}

#[test]
fn prompts_that_were_acknowledged_are_there_when_their_process_is_killed() {
    for ground in grounds() {
        let store = open(&ground.place);
        create(&store).shutdown().unwrap();
        let said = run_killed("ask", &ground.place);
        assert!(said.len() >= 2 * ASKED, "{}: {said:?}", ground.name);
        let mut numbers = BTreeSet::new();
        for line in &said {
            match line.split_once(' ') {
                Some((id, text)) => {
                    let prompt = store.prompt(&thread(), id.parse().unwrap()).unwrap();
                    assert_eq!(prompt.text, text, "{}", ground.name);
                    assert_eq!(prompt.raw, [text.as_bytes(), b"\xff"].concat(), "{}", ground.name);
                    store.prompt_lineage(&thread(), prompt.receipt.id).unwrap();
                }
                None => {
                    numbers.insert(store.artifact(&thread(), line.parse().unwrap()).unwrap().number);
                }
            }
        }
        let written = store.artifacts(&thread(), ArtifactQuery { limit: 0, ..ArtifactQuery::default() }).unwrap().total;
        assert!(
            numbers.len() as u64 <= written
                && numbers.iter().all(|number| u64::try_from(*number).is_ok_and(|it| it <= written)),
            "{}",
            ground.name
        );
        assert!(store.verify(&thread()).unwrap().is_intact(), "{}", ground.name);
    }
}

#[test]
fn answers_of_those_who_are_killed_stand_and_are_used_once() {
    for ground in grounds() {
        let store = open(&ground.place);
        let place = store.workspace(Path::new("/w")).unwrap();
        for number in 0..WAITING {
            place
                .ask_request(NewRequest { expires_in: None, ..NewRequest::approval("x", &number.to_le_bytes()) })
                .unwrap();
        }
        let said = run_killed("answer", &ground.place);
        assert_eq!(said.len(), said.iter().collect::<BTreeSet<_>>().len(), "{}: something was done twice", ground.name);
        for request in all_requests(&store) {
            assert_eq!(request.state, RequestState::Answered, "{}: {}", ground.name, request.id);
            assert!(request.consumed_at.is_some(), "{}: {}", ground.name, request.id);
        }
    }
}

/// A process that waits is woken by what another one sends.
#[test]
fn a_holder_hears_of_messages_from_other_processes() {
    for ground in grounds() {
        let store = open(&ground.place);
        let live = create(&store);
        let mut watch = live.watch_inbox(TakeInto::Either).unwrap();
        assert!(!watch.next_within(Duration::ZERO).unwrap());
        let elsewhere = open(&ground.place);
        elsewhere.inject_message(&thread(), NewMessage::text("another store", "hello")).unwrap();
        assert!(watch.next_within(HANG).unwrap(), "{}", ground.name);
        assert_eq!(live.take_message(TakeMessage::default()).unwrap().unwrap().message.body, "hello");
        let asked = live.ask_request(NewRequest::approval("x", b"x")).unwrap();
        let mut watch = store.watch_request(asked.id).unwrap();
        assert_eq!(watch.next_within(Duration::ZERO).unwrap(), None);
        let answer = Answer { option: "deny".to_owned(), by: Principal::remote("bo"), note: None };
        elsewhere.answer_request(asked.id, answer).unwrap();
        let found = watch.next_within(HANG).unwrap().map(|request| request.state);
        assert_eq!(found, Some(RequestState::Answered), "{}", ground.name);
    }
}
