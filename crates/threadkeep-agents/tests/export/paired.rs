//! Writers whose agents keep a result within its call, or right behind it: Gemini CLI, opencode and goose.
//!
//! The readers here know nothing of the codecs; what they ask for is what the agents' own programs were seen to refuse.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep_agents::conversation::{Author, Block, MediaData, Message, Standing};
use threadkeep_agents::export::codec_for;
use threadkeep_agents::import::{ImportOptions, Importer};

use super::messages::{turn, written};
use super::{export, imported, sessions, strict};

/// What a session says, however its messages are cut.
#[derive(Debug, Default, PartialEq)]
struct Told {
    person: Vec<String>,
    model: Vec<String>,
    summaries: Vec<String>,
    calls: Vec<(String, String, Value)>,
    /// By call: what came back, how many pictures, and whether it failed.
    results: BTreeMap<String, (String, usize, bool)>,
}

fn shown(block: &Block, keeps_addresses: bool) -> Option<String> {
    match block {
        Block::Text(text) if text.trim().is_empty() => None,
        Block::Text(text) => Some(text.clone()),
        Block::Media { data: MediaData::Base64(data), .. } => Some(format!("picture {data}")),
        Block::Media { data: MediaData::Reference(place), .. } if keeps_addresses => Some(format!("picture {place}")),
        Block::Media { media_type, data } => Some(Block::named(media_type, data)),
        _ => None,
    }
}

/// What the messages say, as the agent has it.
fn told(agent: &str, messages: &[Message]) -> Told {
    let is_opencode = agent == "opencode";
    let holds = |block: &Block| match block {
        Block::Media { data, .. } => is_opencode || (agent == "goose" && matches!(data, MediaData::Base64(_))),
        _ => false,
    };
    let mut told = Told::default();
    for message in messages {
        for block in &message.blocks {
            match (message.author, message.standing, block) {
                (_, _, Block::Call { id, name, input }) => {
                    let input = if input.is_object() { input.clone() } else { json!({"input": input}) };
                    told.calls.push((id.clone(), name.clone(), input));
                }
                (_, _, Block::Result { id, content, is_error }) => {
                    let picture = |block: &&Block| holds(block);
                    let said = content.iter().filter(|block| !picture(block)).map(|block| match block {
                        Block::Text(text) => text.clone(),
                        Block::Media { media_type, data } => Block::named(media_type, data),
                        other => panic!("{other:?}"),
                    });
                    let said = said.collect::<Vec<_>>().join("\n");
                    let is_left_out = *is_error && is_opencode;
                    let pictures = if is_left_out { 0 } else { content.iter().filter(picture).count() };
                    told.results.insert(id.clone(), (said, pictures, *is_error));
                }
                (_, Standing::Summary, block) => told.summaries.extend(shown(block, false)),
                (Author::Person, Standing::Injected, block) if agent == "goose" => {
                    told.summaries.extend(shown(block, false));
                }
                (Author::Person, _, block) => told.person.extend(shown(block, is_opencode)),
                (Author::Model, _, Block::Text(text)) => told.model.push(text.clone()),
                _ => {}
            }
        }
    }
    told
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| format!("no {key} in {value}"))
}

fn gemini(bytes: &[u8]) -> Result<Told, String> {
    let lines = strict::lines(bytes)?;
    let mut told = Told::default();
    let mut ids = BTreeSet::new();
    let header = lines.first().ok_or("nothing")?;
    for key in ["sessionId", "projectHash", "startTime"] {
        text(header, key)?;
    }
    for line in &lines[1..] {
        let set = line["$set"]["messages"].as_array();
        if line.get("$set").is_some() && set.is_none() {
            continue;
        }
        for message in set.map_or_else(|| std::slice::from_ref(line), Vec::as_slice) {
            let is_new = ids.insert(text(message, "id")?);
            if !is_new {
                return Err(format!("an id comes twice: {message}"));
            }
            text(message, "timestamp")?;
            match text(message, "type")?.as_str() {
                "user" => {
                    for piece in message["content"].as_array().ok_or("no pieces")? {
                        let data = piece["inlineData"]["data"].as_str().map(|data| format!("picture {data}"));
                        let said = data.map_or_else(|| text(piece, "text"), Ok)?;
                        if set.is_some() { told.summaries.push(said) } else { told.person.push(said) }
                    }
                }
                "gemini" => {
                    let said = text(message, "content")?;
                    told.model.extend((!said.is_empty()).then_some(said));
                    for call in message["toolCalls"].as_array().into_iter().flatten() {
                        let id = text(call, "id")?;
                        told.calls.push((id.clone(), text(call, "name")?, call["args"].clone()));
                        let response = &call["result"][0]["functionResponse"];
                        if text(response, "id")? != id || response["name"] != call["name"] {
                            return Err(format!("the result is another's: {call}"));
                        }
                        let failed = response["response"].get("error").is_some();
                        let said = text(&response["response"], if failed { "error" } else { "output" })?;
                        told.results.insert(id, (said, 0, failed));
                    }
                }
                other => return Err(format!("a message of {other}")),
            }
        }
    }
    Ok(told)
}

fn opencode(bytes: &[u8]) -> Result<Told, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let info = &document["info"];
    for key in ["id", "slug", "projectID", "directory", "title", "version"] {
        text(info, key)?;
    }
    if !info["id"].as_str().is_some_and(|id| id.starts_with("ses_")) || !info["time"]["created"].is_u64() {
        return Err(format!("not a session: {info}"));
    }
    let mut told = Told::default();
    let (mut last, mut time) = (String::new(), 0);
    for message in document["messages"].as_array().ok_or("no messages")? {
        let info = &message["info"];
        let id = text(info, "id")?;
        let created = info["time"]["created"].as_u64().ok_or("no time")?;
        if id <= last || created < time || !id.starts_with("msg_") || info["sessionID"] != document["info"]["id"] {
            return Err(format!("out of order: {info}"));
        }
        (last, time) = (id, created);
        let is_user = text(info, "role")? == "user";
        text(info, "agent")?;
        match is_user {
            true => drop((text(&info["model"], "providerID")?, text(&info["model"], "modelID")?)),
            false => {
                for key in ["parentID", "modelID", "providerID", "mode", "finish"] {
                    text(info, key)?;
                }
                for key in ["input", "output", "reasoning"] {
                    info["tokens"][key].as_u64().ok_or("no tokens")?;
                }
                text(&info["path"], "cwd")?;
            }
        }
        let mut ids = BTreeSet::new();
        for part in message["parts"].as_array().ok_or("no parts")? {
            if !ids.insert(text(part, "id")?) || part["messageID"] != info["id"] {
                return Err(format!("not its part: {part}"));
            }
            match text(part, "type")?.as_str() {
                "text" if is_user => told.person.push(text(part, "text")?),
                "text" if info["summary"] == true => told.summaries.push(text(part, "text")?),
                "text" => told.model.push(text(part, "text")?),
                "file" => {
                    let url = text(part, "url")?;
                    text(part, "mime")?;
                    told.person
                        .push(format!("picture {}", url.rsplit_once(";base64,").map_or(&*url, |(_, data)| data)));
                }
                "tool" => {
                    let (id, state) = (text(part, "callID")?, &part["state"]);
                    told.calls.push((id.clone(), text(part, "tool")?, state["input"].clone()));
                    let failed = text(state, "status")? == "error";
                    let said = text(state, if failed { "error" } else { "output" })?;
                    let pictures = state["attachments"].as_array().map_or(0, Vec::len);
                    told.results.insert(id, (said, pictures, failed));
                }
                "compaction" => {}
                other => return Err(format!("a part of {other}")),
            }
        }
    }
    Ok(told)
}

/// What goose's own types take, and what it would change in a conversation before its model gets it.
fn goose(bytes: &[u8]) -> Result<Told, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let messages = goose_messages(&document)?;
    let mut told = Told::default();
    let (mut ids, mut asked, mut time, mut is_hidden) = (BTreeSet::new(), BTreeSet::new(), 0, true);
    for message in messages {
        if !ids.insert(text(message, "id")?) {
            return Err(format!("an id comes twice: {message}"));
        }
        let created = message["created"].as_i64().filter(|created| *created >= time).ok_or("out of order")?;
        time = created;
        let sees = |who: &str| message["metadata"][who].as_bool().ok_or("nobody is to see it");
        let (person, model) = (sees("userVisible")?, sees("agentVisible")?);
        // What the model is to see again begins with a summary, and ends with the end.
        if model && is_hidden && ids.len() > 1 && person {
            return Err(format!("it is shown without a summary: {message}"));
        }
        is_hidden = !model;
        goose_message(message, person, &mut asked, &mut told)?;
    }
    if asked.is_empty() { Ok(told) } else { Err(format!("no results of {asked:?}")) }
}

/// What the session says of itself, and its messages.
fn goose_messages(document: &Value) -> Result<&Vec<Value>, String> {
    for key in ["id", "working_dir", "name", "created_at", "updated_at", "session_type"] {
        text(document, key)?;
    }
    if document["name"].as_str().is_none_or(|name| name.trim() != name || name.is_empty()) {
        return Err("a name that it does not find the session by".to_owned());
    }
    if !document["extension_data"].is_object() || document.get("description").is_some() {
        return Err("not a session".to_owned());
    }
    let messages = document["conversation"].as_array().ok_or("no conversation")?;
    if document["message_count"].as_u64() != Some(messages.len() as u64) {
        return Err("another number of messages".to_owned());
    }
    Ok(messages)
}

fn goose_message(message: &Value, person: bool, asked: &mut BTreeSet<String>, told: &mut Told) -> Result<(), String> {
    let is_user = match text(message, "role")?.as_str() {
        "user" => true,
        "assistant" => false,
        other => return Err(format!("a role {other}")),
    };
    let content = message["content"].as_array().filter(|content| !content.is_empty()).ok_or("no content")?;
    let answers = content.iter().filter(|piece| piece["type"] == "toolResponse").count();
    if answers > 0 && answers < content.len() {
        return Err(format!("words among results: {message}"));
    }
    if answers == 0 && !asked.is_empty() {
        return Err(format!("it comes before the results of {asked:?}"));
    }
    for piece in content {
        match (text(piece, "type")?.as_str(), is_user) {
            ("text", _) if text(piece, "text")?.trim().is_empty() => return Err("a blank text".to_owned()),
            ("text", true) if person => told.person.push(text(piece, "text")?),
            // What the agent says in the person's place looks the same.
            ("text", true) => told.summaries.push(text(piece, "text")?),
            ("text", false) => told.model.push(text(piece, "text")?),
            ("image", true) => {
                text(piece, "mimeType")?;
                let picture = format!("picture {}", text(piece, "data")?);
                if person { told.person.push(picture) } else { told.summaries.push(picture) }
            }
            ("toolRequest", false) => {
                let call = &piece["toolCall"];
                if call["status"] != "success" || !call["value"]["arguments"].is_object() {
                    return Err(format!("no call: {piece}"));
                }
                let id = text(piece, "id")?;
                asked.insert(id.clone());
                told.calls.push((id, text(&call["value"], "name")?, call["value"]["arguments"].clone()));
            }
            ("toolResponse", true) => {
                let id = text(piece, "id")?;
                if !asked.remove(&id) {
                    return Err(format!("nothing asked for {id}"));
                }
                let value = &piece["toolResult"]["value"];
                let failed = value["isError"].as_bool().ok_or("neither failed nor done")?;
                let (mut said, mut pictures) = (Vec::new(), 0);
                for part in value["content"].as_array().ok_or("no result")? {
                    match text(part, "type")?.as_str() {
                        "text" => said.push(text(part, "text")?),
                        "image" => pictures += usize::from(!text(part, "data")?.is_empty()),
                        other => return Err(format!("a result of {other}")),
                    }
                }
                told.results.insert(id, (said.join("\n"), pictures, failed));
            }
            other => return Err(format!("a piece {other:?}")),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back_with_results_in_their_calls(turns in prop::collection::vec(turn(), 0..5)) {
        let mut messages = turns.concat();
        // Ids are of their turn alone.
        let mut seen = std::collections::HashSet::new();
        messages.retain(|message| message.blocks.iter().all(|block| match block {
            Block::Call { id, .. } => seen.insert(id.clone()),
            Block::Result { id, .. } => seen.insert(format!("result {id}")),
            _ => true,
        }));
        for agent in ["gemini-cli", "opencode", "goose"] {
            let codec = codec_for(agent).unwrap();
            let bytes = written(&*codec, &messages);
            prop_assert_eq!(&bytes, &written(&*codec, &messages));
            let found = match agent {
                "opencode" => opencode(&bytes),
                "goose" => goose(&bytes),
                _ => gemini(&bytes),
            };
            match found {
                Ok(found) => prop_assert_eq!(found, told(agent, &messages), "{}", agent),
                Err(wrong) => prop_assert!(false, "{}: {}", agent, wrong),
            }
        }
    }
}

/// Sessions of other agents, written, read by the codec again, and compared by what is said in them.
#[test]
fn a_session_that_was_written_is_imported_as_what_it_says() {
    let mut seen = 0;
    for path in sessions(super::EXAMPLES) {
        let Some((store, thread)) = imported(&path) else { continue };
        let details = store.get(&thread).unwrap().details;
        for (agent, name) in
            [("gemini-cli", "session-x.jsonl"), ("opencode", "opencode-x.json"), ("goose", "goose-x.json")]
        {
            let (bytes, _) = export(&store, &thread, None, agent);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(name);
            std::fs::write(&file, &bytes).unwrap();
            let other = super::store();
            let report = Importer::new(&other, ImportOptions::default()).run(&[file], &mut |_| {}).unwrap();
            assert!(report.problems.is_empty(), "{}: {report:?}", path.display());
            let back = other.list(threadkeep::ListQuery::default()).unwrap().entries;
            assert_eq!(back.len(), 1, "{}", path.display());
            assert_eq!(back[0].details.agent.as_deref(), Some(agent));
            assert_eq!(back[0].branches, 1, "{}: a path is no tree", path.display());
            if agent != "gemini-cli" && details.cwd.is_some() {
                assert_eq!(back[0].details.cwd, details.cwd, "{}", path.display());
            }
            assert!(other.plan_turn_repair(&back[0].id).unwrap().closed.is_empty(), "every call has its result");
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen} sessions were written");
}
