//! Compressing stored bytes, small ones with a dictionary.
//!
//! Most items are small, and what is the same in all of them, the names of fields in their order, is most of what they hold: each
//! compressed alone says it anew. The dictionary says it once, in this library. `dictionaries/0001.zdict` was trained on files
//! that were written for Threadkeep (`threadkeep-bench-dictionary`), so it holds nobody's words. It can never change; another one
//! would be a bit of its own.

use std::cell::RefCell;
use std::sync::LazyLock;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::CParameter;

use crate::content::TEMPLATE_SLACK;
use crate::error::{Error, Result};
use crate::item::MAX_CONTENT_BYTES;

const DICTIONARY: &[u8] = include_bytes!("../../dictionaries/0001.zdict");
/// Below this size compression saves nothing worth its time.
const FROM: usize = 192;
/// Below this size a lower level is used: real records become a hundredth larger, in a third less time.
const SMALL: usize = 4 << 10;
const LEVEL_SMALL: i32 = 2;
const LEVEL: i32 = 3;
/// From this size on a dictionary saves nothing worth its time: 16 to 64 KiB of real sessions become 3 % smaller in 40 % more of it.
const DICTIONARY_BELOW: usize = 16 << 10;

const ZSTD: i64 = 1;
const WITH_DICTIONARY: i64 = ZSTD | 8;

/// Compresses bytes, if that makes them smaller; gives how they are stored.
pub(super) fn squeeze(bytes: &[u8]) -> (i64, Vec<u8>) {
    let encoding = match bytes.len() {
        ..FROM => return (0, bytes.to_vec()),
        FROM..DICTIONARY_BELOW => WITH_DICTIONARY,
        _ => ZSTD,
    };
    match Contexts::with(|contexts| contexts.compressor(bytes.len())?.compress(bytes).ok()) {
        Some(small) if small.len() < bytes.len() => (encoding, small),
        _ => (0, bytes.to_vec()),
    }
}

/// Gives the exact bytes back.
pub(super) fn unsqueeze(encoding: i64, size: usize, bytes: &[u8]) -> Result<Vec<u8>> {
    let damaged = |detail: String| Error::corrupt("item content", detail);
    let has_dictionary = match encoding {
        0 => return Ok(bytes.to_vec()),
        ZSTD => false,
        WITH_DICTIONARY => true,
        other => return Err(damaged(format!("unknown encoding {other}"))),
    };
    Contexts::with(|contexts| {
        let context = contexts.decompressor(has_dictionary).ok_or_else(|| damaged("no decompressor".to_owned()))?;
        let capacity = size.min(MAX_CONTENT_BYTES + TEMPLATE_SLACK);
        context.decompress(bytes, capacity).map_err(|error| damaged(error.to_string()))
    })
}

type Encoder = LazyLock<Option<EncoderDictionary<'static>>>;

static ENCODER_SMALL: Encoder = LazyLock::new(|| EncoderDictionary::try_copy(DICTIONARY, LEVEL_SMALL).ok());
static ENCODER: Encoder = LazyLock::new(|| EncoderDictionary::try_copy(DICTIONARY, LEVEL).ok());
static DECODER: LazyLock<Option<DecoderDictionary<'static>>> =
    LazyLock::new(|| DecoderDictionary::try_copy(DICTIONARY).ok());

thread_local! {
    // A context costs more than compressing a message.
    static CONTEXTS: RefCell<Contexts> = const { RefCell::new(Contexts::NONE) };
}

/// What a thread keeps, each made at its first use.
struct Contexts {
    small: Option<Compressor<'static>>,
    medium: Option<Compressor<'static>>,
    large: Option<Compressor<'static>>,
    plain: Option<Decompressor<'static>>,
    prepared: Option<Decompressor<'static>>,
}

impl Contexts {
    const NONE: Self = Self { small: None, medium: None, large: None, plain: None, prepared: None };

    /// Uses those of this thread. One that ends has none any more, and makes them anew.
    fn with<T>(run: impl Fn(&mut Self) -> T) -> T {
        CONTEXTS.try_with(|kept| run(&mut kept.borrow_mut())).unwrap_or_else(|_| {
            let mut own = Self::NONE;
            run(&mut own)
        })
    }

    fn compressor(&mut self, bytes: usize) -> Option<&mut Compressor<'static>> {
        let (kept, new): (_, fn() -> Option<Compressor<'static>>) = match bytes {
            ..SMALL => (&mut self.small, || with_dictionary(&ENCODER_SMALL)),
            SMALL..DICTIONARY_BELOW => (&mut self.medium, || with_dictionary(&ENCODER)),
            _ => (&mut self.large, || Compressor::new(LEVEL).ok()),
        };
        if kept.is_none() {
            *kept = new();
        }
        kept.as_mut()
    }

    fn decompressor(&mut self, has_dictionary: bool) -> Option<&mut Decompressor<'static>> {
        let (kept, new): (_, fn() -> Option<Decompressor<'static>>) = match has_dictionary {
            true => (&mut self.prepared, || Decompressor::with_prepared_dictionary(DECODER.as_ref()?).ok()),
            false => (&mut self.plain, || Decompressor::new().ok()),
        };
        if kept.is_none() {
            *kept = new();
        }
        kept.as_mut()
    }
}

fn with_dictionary(dictionary: &'static Encoder) -> Option<Compressor<'static>> {
    let mut compressor = Compressor::with_prepared_dictionary(dictionary.as_ref()?).ok()?;
    // The encoding says which dictionary it is, in place of four bytes of each item.
    compressor.set_parameter(CParameter::DictIdFlag(false)).ok()?;
    Some(compressor)
}

#[cfg(test)]
mod tests {
    use super::{DICTIONARY, WITH_DICTIONARY, ZSTD, squeeze, unsqueeze};
    use crate::error::Error;
    use crate::item::Hash;

    /// A record like those of the agents whose files most items come from.
    const RECORD: &str = r#"{"parentUuid":"a2b9c3","isSidechain":false,"userType":"external","type":"assistant","uuid":"f00d",
        "message":{"role":"assistant","type":"message","content":[{"type":"text","text":"I read it."}],"stop_reason":null}}"#;

    #[test]
    fn the_dictionary_never_changes() {
        let found = Hash::of(DICTIONARY).to_string();
        assert_eq!(
            found, "5e4dc8a120b56a25e649d5517fab995b6e37265036ffa28097a6f8501bde1cec",
            "whatever was stored with it could not be read any more: add another one beside it"
        );
    }

    #[test]
    fn a_small_record_is_stored_in_half_of_what_it_takes_alone() {
        let (encoding, small) = squeeze(RECORD.as_bytes());
        assert_eq!(encoding, WITH_DICTIONARY);
        let alone = zstd::bulk::compress(RECORD.as_bytes(), 3).unwrap();
        assert!(small.len() * 2 < alone.len(), "{} bytes, and {} alone", small.len(), alone.len());
        assert_eq!(unsqueeze(encoding, RECORD.len(), &small).unwrap(), RECORD.as_bytes());
    }

    #[test]
    fn what_was_stored_without_a_dictionary_is_read() {
        for level in [1, 3] {
            let alone = zstd::bulk::compress(RECORD.as_bytes(), level).unwrap();
            assert_eq!(unsqueeze(ZSTD, RECORD.len(), &alone).unwrap(), RECORD.as_bytes());
        }
    }

    #[test]
    fn damage_is_told_and_an_unknown_encoding_named() {
        let (encoding, small) = squeeze(RECORD.as_bytes());
        let cut = unsqueeze(encoding, RECORD.len(), &small[..small.len() - 1]).unwrap_err();
        let wrong = unsqueeze(ZSTD, RECORD.len(), &small).unwrap_err();
        let unknown = unsqueeze(16, RECORD.len(), &small).unwrap_err();
        for error in [&cut, &wrong, &unknown] {
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
        assert!(unknown.to_string().contains("16"));
    }
}
