//! How an item's bytes are kept: compressed, and with large payloads taken out and stored once.

mod compression;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Result};
use crate::item::{Hash, MAX_CONTENT_BYTES};
use compression::{squeeze, unsqueeze};

/// Content of this size and more is stored once under its hash.
const BLOB_FROM: usize = 64 << 10;
/// Base64 text of this length and more is decoded and stored once, if encoding it again gives the same text.
const BASE64_FROM: usize = 4 << 10;

const SPLICED: i64 = 2;
/// Beside the others: what stands here is not what was written; that was redacted.
const REDACTED: i64 = 4;

/// Content as the `items` table keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) encoding: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) blobs: Vec<Blob>,
}

/// A payload that is stored once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: Hash,
    pub(crate) size: usize,
    pub(crate) encoding: i64,
    pub(crate) data: Vec<u8>,
}

/// A place where a payload was taken out of the content.
struct Splice {
    /// Where the payload belongs, counted in the bytes that were left.
    at: usize,
    base64: bool,
    digest: Hash,
}

/// Prepares content for storing.
pub(crate) fn encode(content: &[u8]) -> Stored {
    let mut blobs = Vec::new();
    let spliced = splice(content, &mut blobs);
    let (bytes, flags) = match &spliced {
        Some(bytes) => (bytes.as_slice(), SPLICED),
        None => (content, 0),
    };
    let (encoding, bytes) = squeeze(bytes);
    Stored { encoding: encoding | flags, bytes, blobs }
}

/// Whether content of this encoding stands in the place of what was written.
pub(crate) fn is_redacted(encoding: i64) -> bool {
    encoding & REDACTED != 0
}

/// The encoding of what stands in the place of redacted content.
pub(crate) fn redacted(encoding: i64) -> i64 {
    encoding | REDACTED
}

/// Gives the exact bytes back. `blob` loads a payload by its digest.
pub(crate) fn decode(
    encoding: i64,
    size: usize,
    bytes: &[u8],
    blob: &mut dyn FnMut(Hash) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let encoding = encoding & !REDACTED;
    if encoding & SPLICED == 0 {
        return unsqueeze(encoding, size, bytes);
    }
    let template = unsqueeze(encoding & !(SPLICED | REDACTED), size.saturating_add(TEMPLATE_SLACK), bytes)?;
    let damaged = || Error::corrupt("item content", "its template is damaged");
    let (splices, literal) = read_template(&template).ok_or_else(damaged)?;
    let mut out = Vec::with_capacity(size.min(MAX_CONTENT_BYTES));
    let mut taken = 0;
    for splice in splices {
        out.extend_from_slice(literal.get(taken..splice.at).ok_or_else(damaged)?);
        taken = splice.at;
        let payload = blob(splice.digest)?;
        if splice.base64 {
            out.extend_from_slice(STANDARD.encode(payload).as_bytes());
        } else {
            out.extend_from_slice(&payload);
        }
    }
    out.extend_from_slice(literal.get(taken..).ok_or_else(damaged)?);
    Ok(out)
}

/// The payloads that were taken out of content.
pub(crate) fn payloads(encoding: i64, size: usize, bytes: &[u8]) -> Result<Vec<Hash>> {
    if encoding & SPLICED == 0 {
        return Ok(Vec::new());
    }
    let template = unsqueeze(encoding & !(SPLICED | REDACTED), size.saturating_add(TEMPLATE_SLACK), bytes)?;
    let (splices, _) =
        read_template(&template).ok_or_else(|| Error::corrupt("item content", "its template is damaged"))?;
    Ok(splices.into_iter().map(|splice| splice.digest).collect())
}

/// Prepares bytes for being stored whole, under their hash.
pub(crate) fn encode_blob(bytes: &[u8]) -> Blob {
    let (encoding, data) = squeeze(bytes);
    Blob { digest: Hash::of(bytes), size: bytes.len(), encoding, data }
}

/// Gives a blob's exact bytes back.
pub(crate) fn decode_blob(encoding: i64, size: usize, data: &[u8]) -> Result<Vec<u8>> {
    unsqueeze(encoding, size, data)
}

/// Takes payloads out of content; gives the template that is left, if anything was taken out.
fn splice(content: &[u8], blobs: &mut Vec<Blob>) -> Option<Vec<u8>> {
    let mut splices = Vec::new();
    let mut literal = Vec::new();
    let mut taken = 0;
    for (start, end) in base64_runs(content) {
        let (Some(before), Some(text)) = (content.get(taken..start), content.get(start..end)) else {
            continue;
        };
        let Some(payload) = reversible(text) else {
            continue;
        };
        literal.extend_from_slice(before);
        splices.push(Splice { at: literal.len(), base64: true, digest: keep(&payload, blobs) });
        taken = end;
    }
    literal.extend_from_slice(content.get(taken..).unwrap_or_default());
    if literal.len() >= BLOB_FROM && splices.is_empty() {
        let digest = keep(&std::mem::take(&mut literal), blobs);
        splices.push(Splice { at: 0, base64: false, digest });
    }
    (!splices.is_empty()).then(|| write_template(&splices, &literal))
}

fn keep(payload: &[u8], blobs: &mut Vec<Blob>) -> Hash {
    let digest = Hash::of(payload);
    if !blobs.iter().any(|blob| blob.digest == digest) {
        blobs.push(encode_blob(payload));
    }
    digest
}

fn reversible(text: &[u8]) -> Option<Vec<u8>> {
    let payload = STANDARD.decode(text).ok()?;
    (STANDARD.encode(&payload).as_bytes() == text).then_some(payload)
}

/// Finds runs of base64 text that are long enough, looking at one byte in `BASE64_FROM` outside of them.
fn base64_runs(content: &[u8]) -> Vec<(usize, usize)> {
    let in_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut runs = Vec::new();
    let mut free_from = 0;
    let mut probe = BASE64_FROM - 1;
    while let Some(byte) = content.get(probe) {
        if !in_alphabet(byte) {
            probe += BASE64_FROM;
            continue;
        }
        let before = content.get(free_from..probe).unwrap_or_default();
        let start = probe - before.iter().rev().take_while(|byte| in_alphabet(byte)).count();
        let after = content.get(probe..).unwrap_or_default();
        let letters = probe + after.iter().take_while(|byte| in_alphabet(byte)).count();
        let padding =
            content.get(letters..).unwrap_or_default().iter().take(2).take_while(|byte| **byte == b'=').count();
        let end = letters + padding;
        if end - start >= BASE64_FROM {
            runs.push((start, end));
            free_from = end;
        }
        probe = end + BASE64_FROM;
    }
    runs
}

const SPLICE_BYTES: usize = 8 + 1 + 32;
/// More than the table of any template needs beyond the bytes it saves.
const TEMPLATE_SLACK: usize = 4096;

fn write_template(splices: &[Splice], literal: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + splices.len() * SPLICE_BYTES + literal.len());
    out.extend_from_slice(&u32::try_from(splices.len()).unwrap_or(u32::MAX).to_le_bytes());
    for splice in splices {
        out.extend_from_slice(&(splice.at as u64).to_le_bytes());
        out.push(u8::from(splice.base64));
        out.extend_from_slice(&splice.digest.0);
    }
    out.extend_from_slice(literal);
    out
}

fn read_template(template: &[u8]) -> Option<(Vec<Splice>, &[u8])> {
    let (count, mut rest) = template.split_first_chunk::<4>()?;
    let mut splices = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (at, tail) = rest.split_first_chunk::<8>()?;
        let (base64, tail) = tail.split_first()?;
        let (digest, tail) = tail.split_first_chunk::<32>()?;
        let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
        splices.push(Splice { at, base64: *base64 == 1, digest: Hash(*digest) });
        rest = tail;
    }
    Some((splices, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use base64::Engine as _;
    use proptest::prelude::*;

    use super::{Stored, decode, decode_blob, encode};
    use crate::error::Error;
    use crate::item::Hash;

    fn round_trip(content: &[u8]) -> Stored {
        let stored = encode(content);
        let blobs: HashMap<Hash, Vec<u8>> = stored
            .blobs
            .iter()
            .map(|blob| (blob.digest, decode_blob(blob.encoding, blob.size, &blob.data).unwrap()))
            .collect();
        let back = decode(stored.encoding, content.len(), &stored.bytes, &mut |digest| {
            blobs.get(&digest).cloned().ok_or_else(|| Error::not_found("blob", digest))
        })
        .unwrap();
        assert!(back == content, "{} bytes came back as {}", content.len(), back.len());
        stored
    }

    fn picture(bytes: usize, seed: u8) -> String {
        let data: Vec<u8> = (0..bytes).map(|i| ((i * 31 + i / 251) % 256).to_le_bytes()[0] ^ seed).collect();
        base64::engine::general_purpose::STANDARD.encode(data)
    }

    #[test]
    fn inline_pictures_are_stored_once() {
        let picture = picture(50_000, 1);
        let content = format!("{{\"a\":\"{picture}\",\"b\":\"{picture}\",\"c\":\"text\"}}");
        let stored = round_trip(content.as_bytes());
        assert_eq!(stored.blobs.len(), 1);
        assert!(stored.bytes.len() < 300);
    }

    #[test]
    fn text_that_only_looks_like_base64_stays() {
        for content in ["A".repeat(8193), "ab+/".repeat(5000) + "=", "x".repeat(4096) + "=y"] {
            round_trip(content.as_bytes());
        }
    }

    #[test]
    fn large_payloads_become_one_blob() {
        let stored = round_trip(&b"all work and no play ".repeat(10_000));
        assert_eq!(stored.blobs.len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(content in prop::collection::vec(any::<u8>(), 0..2000), repeat in 1_usize..120) {
            round_trip(&content.repeat(repeat));
        }

        #[test]
        fn pictures_anywhere_come_back(parts in prop::collection::vec((".{0,40}", 0_usize..9000, any::<u8>()), 0..6)) {
            let content: String = parts.iter().map(|(text, bytes, seed)| text.clone() + &picture(*bytes, *seed)).collect();
            round_trip(content.as_bytes());
        }
    }
}
