//! newt's published rules, written once more and independently of the importer: what a conversation's database must be for newt
//! to open and verify it.

use std::collections::BTreeMap;

use rusqlite::Connection;

pub(super) const SCHEMA: &str = "
CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT NOT NULL, workspace_path TEXT NOT NULL, workspace_key TEXT NOT NULL,
  persona TEXT, end_reason TEXT, writer_fingerprint TEXT NOT NULL, activity_tick INTEGER NOT NULL, tip_hash TEXT NOT NULL,
  started_at_claim INTEGER NOT NULL, updated_at_claim INTEGER NOT NULL, scratchpad TEXT NOT NULL DEFAULT '{}',
  plan TEXT NOT NULL DEFAULT '{}', roadmap_id TEXT, node_id TEXT, preference_pin TEXT NOT NULL DEFAULT '{}');
CREATE TABLE turns (conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE, writer_fingerprint TEXT NOT NULL,
  seq INTEGER NOT NULL, prev_hash TEXT NOT NULL, user TEXT NOT NULL, assistant TEXT NOT NULL, events TEXT NOT NULL DEFAULT '[]',
  tokens_in INTEGER, tokens_out INTEGER, ts_claim INTEGER NOT NULL, encoding_version INTEGER NOT NULL DEFAULT 1,
  phantom_reaches TEXT NOT NULL DEFAULT '[]', sources TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (conversation_id, writer_fingerprint, seq));
CREATE TABLE writer_clock (writer_fingerprint TEXT PRIMARY KEY, last_tick INTEGER NOT NULL);
CREATE TABLE writer_tips (conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  writer_fingerprint TEXT NOT NULL, tip_hash TEXT NOT NULL, tip_seq INTEGER NOT NULL,
  PRIMARY KEY (conversation_id, writer_fingerprint));
CREATE TABLE prompt_receipts (receipt_order INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, conversation_id TEXT,
  writer_fingerprint TEXT, seq INTEGER, previous_prompt_id TEXT, parent_prompt_id TEXT, active_operator_id TEXT, root_prompt_id TEXT,
  origin TEXT, raw_text BLOB, model_text BLOB, raw_digest TEXT, model_digest TEXT, receipt_hash TEXT, ts_claim INTEGER,
  encoding_version INTEGER DEFAULT 1);
CREATE TABLE prompt_artifacts (id TEXT PRIMARY KEY, conversation_id TEXT, writer_fingerprint TEXT, seq INTEGER, prev_hash TEXT,
  prompt_id TEXT, root_prompt_id TEXT, kind TEXT, relation TEXT, locator TEXT, body TEXT, metadata TEXT, ts_claim INTEGER,
  encoding_version INTEGER DEFAULT 1, artifact_hash TEXT);
CREATE TABLE prompt_artifact_tips (conversation_id TEXT PRIMARY KEY, last_seq INTEGER, tip_hash TEXT);
CREATE TABLE roadmaps (id TEXT NOT NULL, workspace_key TEXT NOT NULL, title TEXT NOT NULL DEFAULT '', tree TEXT NOT NULL DEFAULT '',
  schema_version INTEGER NOT NULL DEFAULT 1, created_at_claim INTEGER DEFAULT 0, updated_at_claim INTEGER DEFAULT 0,
  PRIMARY KEY (id, workspace_key));
CREATE TABLE live_owners (conversation_id TEXT PRIMARY KEY, host TEXT, boot_id TEXT, pid INTEGER, writer_fingerprint TEXT,
  heartbeat_tick INTEGER);
CREATE TABLE conversation_inbox (id TEXT PRIMARY KEY, conversation_id TEXT, workspace_key TEXT, seq INTEGER, body TEXT, idem_key TEXT,
  delivered INTEGER DEFAULT 0, delivered_receipt_id TEXT, injected_at_claim INTEGER);
CREATE TABLE enrollment_requests (request_id TEXT PRIMARY KEY, conversation_id TEXT, workspace_key TEXT, candidate_json TEXT,
  resolved INTEGER DEFAULT 0, resolved_by TEXT, created_tick INTEGER);
";

/// A part of a digest: bytes behind their length, a number, or a number that may not be there.
pub(super) enum Field<'a> {
    Bytes(&'a [u8]),
    Int(i64),
    Maybe(Option<i64>),
    MaybeBytes(Option<&'a [u8]>),
}

pub(super) fn digest(domain: &str, fields: &[Field<'_>]) -> String {
    let mut preimage = domain.as_bytes().to_vec();
    for field in fields {
        match field {
            Field::Bytes(bytes) => {
                preimage.extend((bytes.len() as u64).to_le_bytes());
                preimage.extend(*bytes);
            }
            Field::Int(number) => preimage.extend(number.to_le_bytes()),
            Field::Maybe(None) | Field::MaybeBytes(None) => preimage.push(0),
            Field::MaybeBytes(Some(bytes)) => {
                preimage.push(1);
                preimage.extend((bytes.len() as u64).to_le_bytes());
                preimage.extend(*bytes);
            }
            Field::Maybe(Some(number)) => {
                preimage.push(1);
                preimage.extend(number.to_le_bytes());
            }
        }
    }
    blake3::hash(&preimage).to_hex().to_string()
}

pub(super) fn genesis(conversation: &str, writer: &str) -> String {
    let fields = [Field::Bytes(conversation.as_bytes()), Field::Bytes(writer.as_bytes())];
    digest("newt-turn-chain-genesis:v1", &fields)
}

/// A turn to be added by the rules.
pub(super) struct Turn<'a> {
    pub(super) user: &'a str,
    pub(super) assistant: &'a str,
    pub(super) events: &'a str,
    pub(super) reaches: &'a str,
    pub(super) sources: &'a str,
    pub(super) tokens: (Option<i64>, Option<i64>),
    pub(super) version: i64,
}

impl Default for Turn<'_> {
    fn default() -> Self {
        Self { user: "", assistant: "", events: "[]", reaches: "[]", sources: "[]", tokens: (None, None), version: 2 }
    }
}

fn turn_hash(conversation: &str, writer: &str, prev: &str, seq: i64, turn: &Turn<'_>, claim: i64) -> Option<String> {
    let texts = [conversation, writer, prev, turn.user, turn.assistant, turn.events];
    let mut fields: Vec<Field<'_>> = texts.iter().map(|text| Field::Bytes(text.as_bytes())).collect();
    let domain = match turn.version {
        1 => "newt-turn:v1",
        2 => {
            fields.push(Field::Bytes(turn.reaches.as_bytes()));
            fields.push(Field::Bytes(turn.sources.as_bytes()));
            "newt-turn:v2"
        }
        _ => return None,
    };
    fields.extend([Field::Int(seq), Field::Maybe(turn.tokens.0), Field::Maybe(turn.tokens.1), Field::Int(claim)]);
    Some(digest(domain, &fields))
}

/// Adds a turn as newt does: the writer's clock, its chain, the witnesses.
pub(super) fn append(db: &Connection, conversation: &str, writer: &str, turn: &Turn<'_>) {
    let seen = "SELECT coalesce(max(last_tick), 0) FROM writer_clock WHERE writer_fingerprint = ?1
        OR NOT EXISTS (SELECT 1 FROM writer_clock WHERE writer_fingerprint = ?1)";
    let seq: i64 = db.query_row(seen, [writer], |row| row.get::<_, i64>(0)).unwrap() + 1;
    let clock = "INSERT INTO writer_clock VALUES (?1, ?2) ON CONFLICT DO UPDATE SET last_tick = ?2";
    db.execute(clock, (writer, seq)).unwrap();
    let tip = "SELECT tip_hash FROM writer_tips WHERE conversation_id = ?1 AND writer_fingerprint = ?2";
    let prev: Option<String> = db.query_row(tip, [conversation, writer], |row| row.get(0)).ok();
    let prev = prev.unwrap_or_else(|| genesis(conversation, writer));
    let claim = 1_767_323_045_000_000_000 + seq * 1_000_000;
    let hash = turn_hash(conversation, writer, &prev, seq, turn, claim).unwrap();
    let insert = "INSERT INTO turns (conversation_id, writer_fingerprint, seq, prev_hash, user, assistant, events, tokens_in, tokens_out,
        ts_claim, encoding_version, phantom_reaches, sources) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let Turn { user, assistant, events, reaches, sources, tokens, version } = turn;
    let (input, output) = tokens;
    let row: [&dyn rusqlite::ToSql; 13] = [
        &conversation,
        &writer,
        &seq,
        &prev,
        user,
        assistant,
        events,
        input,
        output,
        &claim,
        version,
        reaches,
        sources,
    ];
    db.execute(insert, &row[..]).unwrap();
    let witness =
        "INSERT INTO writer_tips VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET tip_hash = ?3, tip_seq = ?4";
    db.execute(witness, (conversation, writer, &hash, seq)).unwrap();
    let bump = "UPDATE conversations SET writer_fingerprint = ?2, tip_hash = ?3, activity_tick = ?4, updated_at_claim = ?5 WHERE id = ?1";
    db.execute(bump, (conversation, writer, &hash, seq, claim)).unwrap();
}

/// Adds the receipt of a prompt that is its own root, and an artifact of it, as newt does.
pub(super) fn receipt(db: &Connection, conversation: &str, id: &str, previous: Option<&str>, raw: &[u8], seq: i64) {
    let text = |text: &'static str| Field::Bytes(text.as_bytes());
    let raw_digest = digest("newt-prompt-raw:v1", &[Field::Bytes(raw)]);
    let model_digest = digest("newt-prompt-model:v1", &[text("asked")]);
    let hash = digest(
        "newt-prompt-receipt:v2",
        &[
            Field::Bytes(id.as_bytes()),
            Field::Bytes(conversation.as_bytes()),
            text("wa"),
            Field::Int(seq),
            Field::MaybeBytes(previous.map(str::as_bytes)),
            Field::MaybeBytes(None),
            Field::Bytes(id.as_bytes()),
            Field::MaybeBytes(Some(id.as_bytes())),
            text("operator"),
            Field::Bytes(raw_digest.as_bytes()),
            Field::Bytes(model_digest.as_bytes()),
            Field::Int(5),
            Field::Int(2),
        ],
    );
    let insert = "INSERT INTO prompt_receipts (id, conversation_id, writer_fingerprint, seq, previous_prompt_id, active_operator_id,
        root_prompt_id, origin, raw_text, model_text, raw_digest, model_digest, receipt_hash, ts_claim, encoding_version)
        VALUES (?1, ?2, 'wa', ?3, ?4, ?1, ?1, 'operator', ?5, 'asked', ?6, ?7, ?8, 5, 2)";
    db.execute(insert, (id, conversation, seq, previous, raw, &raw_digest, &model_digest, &hash)).unwrap();
    let tip = "SELECT tip_hash FROM prompt_artifact_tips WHERE conversation_id = ?1";
    let genesis = || digest("newt-prompt-artifact-chain-genesis:v1", &[Field::Bytes(conversation.as_bytes())]);
    let prev: String = db.query_row(tip, [conversation], |row| row.get(0)).unwrap_or_else(|_| genesis());
    let next = "SELECT coalesce(max(seq), 0) + 1 FROM prompt_artifacts WHERE conversation_id = ?1";
    let number: i64 = db.query_row(next, [conversation], |row| row.get(0)).unwrap();
    let artifact = format!("artifact:{number}");
    let hash = digest(
        "newt-prompt-artifact:v1",
        &[
            Field::Bytes(artifact.as_bytes()),
            Field::Bytes(conversation.as_bytes()),
            text("wa"),
            Field::Bytes(prev.as_bytes()),
            Field::Bytes(id.as_bytes()),
            Field::Bytes(id.as_bytes()),
            text("decision"),
            text("derived_from"),
            Field::Int(number),
            Field::MaybeBytes(None),
            Field::MaybeBytes(Some(b"body")),
            text("{}"),
            Field::Int(6),
            Field::Int(1),
        ],
    );
    let insert = "INSERT INTO prompt_artifacts VALUES (?1, ?2, 'wa', ?3, ?4, ?5, ?5, 'decision', 'derived_from', NULL, 'body', '{}', 6, 1, ?6)";
    db.execute(insert, (&artifact, conversation, number, &prev, id, &hash)).unwrap();
    let tip =
        "INSERT INTO prompt_artifact_tips VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET last_seq = ?2, tip_hash = ?3";
    db.execute(tip, (conversation, number, &hash)).unwrap();
}

/// Makes a conversation that has no turns yet.
pub(super) fn create(db: &Connection, conversation: &str, title: &str, writer: &str, workspace: &str) {
    let insert = "INSERT INTO conversations (id, title, workspace_path, workspace_key, writer_fingerprint, activity_tick, tip_hash,
        started_at_claim, updated_at_claim) VALUES (?1, ?2, ?3, 'key', ?4, 0, ?5, 1767323045000000000, 1767323045000000000)";
    db.execute(insert, (conversation, title, workspace, writer, genesis(conversation, writer))).unwrap();
}

/// Everything that newt would refuse of a database: its chains, its witnesses, its clock.
pub(super) fn refusals(db: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    let mut ids = db.prepare("SELECT id, tip_hash, writer_fingerprint FROM conversations").unwrap();
    let ids: Vec<(String, String, String)> =
        ids.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().map(Result::unwrap).collect();
    for (id, tip, tip_writer) in ids {
        let mut hashes: Vec<(String, i64, String)> = Vec::new();
        let mut turns = db
            .prepare("SELECT writer_fingerprint, seq, prev_hash, user, assistant, events, tokens_in, tokens_out, ts_claim,
               encoding_version, phantom_reaches, sources FROM turns WHERE conversation_id = ?1 ORDER BY writer_fingerprint, seq")
            .unwrap();
        let mut rows = turns.query([&id]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let text = |at: usize| row.get::<_, String>(at).unwrap();
            let (writer, seq, prev): (String, i64, String) = (text(0), row.get(1).unwrap(), text(2));
            let texts = [text(3), text(4), text(5), text(10), text(11)];
            let turn = Turn {
                user: &texts[0],
                assistant: &texts[1],
                events: &texts[2],
                reaches: &texts[3],
                sources: &texts[4],
                tokens: (row.get(6).unwrap(), row.get(7).unwrap()),
                version: row.get(9).unwrap(),
            };
            let before = hashes.iter().rfind(|(of, _, _)| *of == writer);
            let expected = before.map_or_else(|| genesis(&id, &writer), |(_, _, hash)| hash.clone());
            if prev != expected {
                found.push(format!("{id}: turn {seq} does not follow"));
            }
            match turn_hash(&id, &writer, &prev, seq, &turn, row.get(8).unwrap()) {
                Some(hash) => hashes.push((writer, seq, hash)),
                None => found.push(format!("{id}: turn {seq} has an unknown version")),
            }
        }
        let last = |writer: &str| hashes.iter().rfind(|(of, _, _)| of == writer);
        let stands = last(&tip_writer).map_or_else(|| genesis(&id, &tip_writer), |(_, _, hash)| hash.clone());
        if tip != stands {
            found.push(format!("{id}: the tip is another"));
        }
        for (writer, seq, hash) in &hashes {
            if last(writer).is_some_and(|(_, at, _)| at == seq) {
                let witness = "SELECT count(*) FROM writer_tips WHERE conversation_id = ?1 AND writer_fingerprint = ?2
                    AND tip_hash = ?3 AND tip_seq = ?4";
                let count: i64 = db.query_row(witness, (&id, writer, hash, seq), |row| row.get(0)).unwrap();
                if count != 1 {
                    found.push(format!("{id}: writer {writer} has no witness of turn {seq}"));
                }
            }
            let clock = "SELECT coalesce(max(last_tick), 0) FROM writer_clock WHERE writer_fingerprint = ?1";
            let tick: i64 = db.query_row(clock, [writer], |row| row.get(0)).unwrap();
            if tick < *seq {
                found.push(format!("{id}: the clock of {writer} is behind turn {seq}"));
            }
        }
    }
    found
}

/// The receipts of a database: their conversations, active prompts and roots.
type Known = BTreeMap<String, (String, Option<String>, String)>;

/// Everything that newt would refuse of receipts and artifacts: their digests, their chains, what they point at, the last witness.
pub(super) fn receipt_refusals(db: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: BTreeMap<String, String> = BTreeMap::new();
    let mut receipts = db
        .prepare("SELECT id, conversation_id, writer_fingerprint, seq, previous_prompt_id, parent_prompt_id, root_prompt_id,
           active_operator_id, origin, raw_text, model_text, raw_digest, model_digest, receipt_hash, ts_claim, encoding_version
           FROM prompt_receipts ORDER BY receipt_order")
        .unwrap();
    let mut rows = receipts.query([]).unwrap();
    let mut known = Known::new();
    while let Some(row) = rows.next().unwrap() {
        let text = |at: usize| row.get::<_, String>(at).unwrap();
        let maybe = |at: usize| row.get::<_, Option<String>>(at).unwrap();
        let int = |at: usize| row.get::<_, i64>(at).unwrap();
        let (id, conversation, root, active) = (text(0), text(1), text(6), maybe(7));
        let raw = digest("newt-prompt-raw:v1", &[Field::Bytes(&row.get::<_, Vec<u8>>(9).unwrap())]);
        // A database has text in this column where a test put it there.
        let model = row.get_ref(10).unwrap().as_bytes().unwrap();
        std::str::from_utf8(model).unwrap();
        let model = digest("newt-prompt-model:v1", &[Field::Bytes(model)]);
        let (previous, parent) = (maybe(4), maybe(5));
        let texts = [text(2), text(8)];
        let mut fields = vec![
            Field::Bytes(id.as_bytes()),
            Field::Bytes(conversation.as_bytes()),
            Field::Bytes(texts[0].as_bytes()),
            Field::Int(int(3)),
            Field::MaybeBytes(previous.as_deref().map(str::as_bytes)),
            Field::MaybeBytes(parent.as_deref().map(str::as_bytes)),
            Field::Bytes(root.as_bytes()),
        ];
        if int(15) == 2 {
            fields.push(Field::MaybeBytes(active.as_deref().map(str::as_bytes)));
        }
        fields.extend([
            Field::Bytes(texts[1].as_bytes()),
            Field::Bytes(raw.as_bytes()),
            Field::Bytes(model.as_bytes()),
            Field::Int(int(14)),
            Field::Int(int(15)),
        ]);
        let hash = digest(&format!("newt-prompt-receipt:v{}", int(15)), &fields);
        if (text(11), text(12), text(13)) != (raw, model, hash) || (int(15) == 2) != active.is_some() {
            found.push(format!("{id}: its digests do not hold"));
        }
        if before.insert(conversation.clone(), id.clone()) != previous {
            found.push(format!("{id}: another prompt stands before it"));
        }
        match &parent {
            None if texts[1] != "operator" || root != id || active.as_ref().is_some_and(|active| *active != id) => {
                found.push(format!("{id}: it is no objective"));
            }
            Some(parent) => match known.get(parent) {
                Some((of, above, under)) if *of == conversation && *under == root && *above == active => {}
                _ => found.push(format!("{id}: it does not follow its parent")),
            },
            None => {}
        }
        known.insert(id.clone(), (conversation, active.or(Some(id)), root));
    }
    artifact_refusals(db, &known, &mut found);
    found
}

fn artifact_refusals(db: &Connection, known: &Known, found: &mut Vec<String>) {
    let mut artifacts = db
        .prepare("SELECT id, conversation_id, writer_fingerprint, prev_hash, prompt_id, root_prompt_id, kind, relation, seq, locator, body,
           metadata, ts_claim, encoding_version, artifact_hash FROM prompt_artifacts ORDER BY conversation_id, seq")
        .unwrap();
    let mut rows = artifacts.query([]).unwrap();
    let mut tips: BTreeMap<String, (i64, String)> = BTreeMap::new();
    while let Some(row) = rows.next().unwrap() {
        let text = |at: usize| row.get::<_, String>(at).unwrap();
        let int = |at: usize| row.get::<_, i64>(at).unwrap();
        let (texts, locator, body) = ((0..8).map(text).collect::<Vec<_>>(), row.get(9).unwrap(), row.get(10).unwrap());
        let (locator, body): (Option<String>, Option<String>) = (locator, body);
        let metadata = text(11);
        let mut fields: Vec<Field<'_>> = texts.iter().map(|text| Field::Bytes(text.as_bytes())).collect();
        fields.extend([
            Field::Int(int(8)),
            Field::MaybeBytes(locator.as_deref().map(str::as_bytes)),
            Field::MaybeBytes(body.as_deref().map(str::as_bytes)),
            Field::Bytes(metadata.as_bytes()),
            Field::Int(int(12)),
            Field::Int(int(13)),
        ]);
        let hash = digest("newt-prompt-artifact:v1", &fields);
        let genesis = || (0, digest("newt-prompt-artifact-chain-genesis:v1", &[Field::Bytes(texts[1].as_bytes())]));
        let (seq, prev) = tips.get(&texts[1]).cloned().unwrap_or_else(genesis);
        if text(14) != hash || texts[3] != prev || int(8) != seq + 1 {
            found.push(format!("{}: it does not hold", texts[0]));
        }
        if known.get(&texts[4]).is_none_or(|(of, _, root)| *of != texts[1] || *root != texts[5]) {
            found.push(format!("{}: its prompt is another", texts[0]));
        }
        let rendered = serde_json::from_str::<serde_json::Value>(&metadata).unwrap().to_string();
        if rendered != metadata {
            found.push(format!("{}: its metadata is in another form", texts[0]));
        }
        tips.insert(texts[1].clone(), (int(8), hash));
    }
    let mut witnesses = db.prepare("SELECT conversation_id, last_seq, tip_hash FROM prompt_artifact_tips").unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)));
    let witnesses: BTreeMap<String, (i64, String)> =
        witnesses.query_map([], row).unwrap().map(Result::unwrap).collect();
    if witnesses != tips {
        found.push("the witnesses of artifacts are others".to_owned());
    }
}

#[test]
fn the_known_answers_come_out_here_too() {
    let turn =
        Turn { user: "kat user", assistant: "kat assistant", tokens: (Some(11), None), version: 1, ..Turn::default() };
    let hash = |version| {
        turn_hash("kat-conv", "kat-writer", "kat-prev", 3, &Turn { version, ..turn_of(&turn) }, 1_234_567_890)
    };
    assert_eq!(hash(1).unwrap(), "a2166c898d5f471dab2c2cee07d85d192de3a8756d7a404b54dae49168f98a3f");
    assert_eq!(hash(2).unwrap(), "5c0f48e872ee477620df1fe8b3f764e2abe446547303de9748a5e60652cbb789");
    let first = "054ea5340e2930244bf81b23aedd809870e52a2ceb5cc6f4c42777fa5c9e92e8";
    assert_eq!(genesis("kat-conv", "kat-writer"), first);
}

fn turn_of<'a>(turn: &Turn<'a>) -> Turn<'a> {
    Turn { ..*turn }
}
