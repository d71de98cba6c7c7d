//! newt's receipts of prompts and its artifacts: their digests, and what newt refuses of them. Pure.
//!
//! Their rows stay beside the conversation as they are; what is said here is whether they hold.

use super::chain::Preimage;
use crate::codec::Skip;
use crate::rows::Row;

/// How many receipts, or artifacts, that do not hold are named.
const NAMED: usize = 4;

/// What was found of a conversation's receipts and artifacts so far.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// The receipt before the next one.
    last_prompt: Option<String>,
    /// Hash and seq of the artifact before the next one.
    last_artifact: Option<(String, i64)>,
    receipts: Vec<String>,
    artifacts: Vec<String>,
}

/// What the digest of a prompt's bytes is made with.
pub(super) fn text_digest(domain: &str, bytes: &[u8]) -> String {
    let mut preimage = Preimage::new(domain);
    preimage.bytes(bytes);
    preimage.hex()
}

/// What the first artifact of a conversation names in the place of a hash.
pub(super) fn artifact_genesis(conversation: &[u8]) -> String {
    text_digest("newt-prompt-artifact-chain-genesis:v1", conversation)
}

impl Lineage {
    /// A receipt; they come in their order.
    pub(super) fn receipt(&mut self, row: &Row) -> Result<(), Skip> {
        let id = row.required("id")?.to_owned();
        let version = row.int("encoding_version")?.unwrap_or(1);
        let own = |domain: &str, column: &str| -> Result<bool, Skip> {
            let own = text_digest(domain, &row.bytes(column)?);
            let digest = if column == "raw_text" { "raw_digest" } else { "model_digest" };
            Ok(own == row.required(digest)?)
        };
        let texts = own("newt-prompt-raw:v1", "raw_text")? && own("newt-prompt-model:v1", "model_text")?;
        let previous = row.text("previous_prompt_id")?.map(str::to_owned);
        let holds = texts && receipt_hash(row, version)?.as_deref() == row.text("receipt_hash")?;
        if !holds || previous != self.last_prompt {
            self.receipts.push(id.clone());
        }
        self.last_prompt = Some(id);
        Ok(())
    }

    /// An artifact; they come in their order.
    pub(super) fn artifact(&mut self, row: &Row) -> Result<(), Skip> {
        let (id, seq) = (row.required("id")?.to_owned(), row.int("seq")?.unwrap_or_default());
        let hash = artifact_hash(row)?;
        let (before, expected) = match &self.last_artifact {
            Some((hash, seq)) => (hash.clone(), seq.saturating_add(1)),
            None => (artifact_genesis(&row.bytes("conversation_id")?), 1),
        };
        if hash != row.required("artifact_hash")? || before != row.required("prev_hash")? || seq != expected {
            self.artifacts.push(id);
        }
        self.last_artifact = Some((hash, seq));
        Ok(())
    }

    /// The witness of the last artifact.
    pub(super) fn artifact_tip(&mut self, row: &Row) -> Result<(), Skip> {
        let tip = (row.required("tip_hash")?.to_owned(), row.int("last_seq")?.unwrap_or_default());
        if self.last_artifact.as_ref() != Some(&tip) {
            self.artifacts.push("the last one".to_owned());
        }
        Ok(())
    }

    /// What does not hold, for people.
    pub(super) fn remarks(&self) -> Vec<String> {
        let told = |what: &str, ids: &[String]| {
            let named: Vec<&str> = ids.iter().take(NAMED).map(String::as_str).collect();
            let more = ids.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            (!ids.is_empty()).then(|| format!("{what} that do not verify: {}{more}", named.join(", ")))
        };
        [told("receipts of prompts", &self.receipts), told("artifacts", &self.artifacts)]
            .into_iter()
            .flatten()
            .collect()
    }
}

pub(super) fn receipt_hash(row: &Row, version: i64) -> Result<Option<String>, Skip> {
    let active = row.text("active_operator_id")?;
    let domain = match (version, active) {
        (1, None) => "newt-prompt-receipt:v1",
        (2, Some(_)) => "newt-prompt-receipt:v2",
        _ => return Ok(None),
    };
    let optional = |column: &str| row.text(column).map(|text| text.map(str::as_bytes));
    let mut preimage = Preimage::new(domain);
    for column in ["id", "conversation_id", "writer_fingerprint"] {
        preimage.bytes(row.required(column)?.as_bytes());
    }
    preimage.int(row.int("seq")?.unwrap_or_default());
    preimage.optional_bytes(optional("previous_prompt_id")?);
    preimage.optional_bytes(optional("parent_prompt_id")?);
    preimage.bytes(row.required("root_prompt_id")?.as_bytes());
    if version == 2 {
        preimage.optional_bytes(active.map(str::as_bytes));
    }
    for column in ["origin", "raw_digest", "model_digest"] {
        preimage.bytes(row.required(column)?.as_bytes());
    }
    preimage.int(row.int("ts_claim")?.unwrap_or_default());
    preimage.int(version);
    Ok(Some(preimage.hex()))
}

pub(super) fn artifact_hash(row: &Row) -> Result<String, Skip> {
    let optional = |column: &str| row.text(column).map(|text| text.map(str::as_bytes));
    let mut preimage = Preimage::new("newt-prompt-artifact:v1");
    let texts =
        ["id", "conversation_id", "writer_fingerprint", "prev_hash", "prompt_id", "root_prompt_id", "kind", "relation"];
    for column in texts {
        preimage.bytes(row.required(column)?.as_bytes());
    }
    preimage.int(row.int("seq")?.unwrap_or_default());
    preimage.optional_bytes(optional("locator")?);
    preimage.optional_bytes(optional("body")?);
    preimage.bytes(row.required("metadata")?.as_bytes());
    preimage.int(row.int("ts_claim")?.unwrap_or_default());
    preimage.int(row.int("encoding_version")?.unwrap_or(1));
    Ok(preimage.hex())
}
