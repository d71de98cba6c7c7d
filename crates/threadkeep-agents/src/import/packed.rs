//! Documents that stand in a column of a database: as text, or packed with zstd.

use std::io::{self, BufReader, Read};

use crate::segments::MAX_LINE_BYTES;

/// What a frame of zstd begins with (RFC 8878, 3.1.1).
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The longest document that is unpacked: as long as the longest row that is read.
const MAX_BYTES: u64 = MAX_LINE_BYTES as u64;
const BUFFER: usize = 64 << 10;

/// A document as it is stored.
///
/// Guarantees: unpacked it is never held, nor is more of it unpacked than it may be long; what has to be held is the window of its
/// frame, of 128 MiB at most.
#[derive(Debug)]
pub(super) struct Packed<'a> {
    stored: &'a [u8],
    /// How many bytes of it can be read.
    length: u64,
    /// Why that is not all of it.
    pub(super) damage: Option<Damage>,
}

/// Why a document can't be read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    /// It would take more room than anything that was said: an archive that is made to fill a disk, perhaps.
    #[error("it unpacks to more than {MAX_BYTES} bytes; nothing of it is read")]
    TooLong,
    /// It was cut or changed.
    #[error("it can't be unpacked: {0}")]
    Broken(#[from] io::Error),
}

impl<'a> Packed<'a> {
    /// Looks through a document.
    pub(super) fn new(stored: &'a [u8]) -> Self {
        Self::with_max(stored, MAX_BYTES)
    }

    fn with_max(stored: &'a [u8], max: u64) -> Self {
        let mut found = Self { stored, length: 0, damage: None };
        match found.measure(max) {
            Ok(length) if length > max => found.damage = Some(Damage::TooLong),
            Ok(length) => found.length = length,
            Err((length, error)) => (found.length, found.damage) = (length, Some(Damage::Broken(error))),
        }
        found
    }

    /// Reads what can be read of it, from its beginning.
    pub(super) fn open(&self) -> io::Result<BufReader<Box<dyn Read + 'a>>> {
        Ok(BufReader::with_capacity(BUFFER, Box::new(self.plain()?.take(self.length))))
    }

    fn plain(&self) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self.stored.starts_with(MAGIC) {
            true => Box::new(zstd::Decoder::with_buffer(self.stored)?),
            false => Box::new(self.stored),
        })
    }

    /// How long it is, or how much of it comes before what is broken; no more than one byte behind the bound is looked at.
    fn measure(&self, max: u64) -> Result<u64, (u64, io::Error)> {
        let mut input = self.plain().map_err(|error| (0, error))?.take(max.saturating_add(1));
        let mut buffer = vec![0; BUFFER];
        let mut length = 0;
        loop {
            match input.read(&mut buffer) {
                Ok(0) => return Ok(length),
                Ok(read) => length += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((length, error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::{Damage, Packed};

    fn read(packed: &Packed<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packed.open().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn text_and_packed_text_are_read_alike() {
        let text = br#"{"messages":[]}"#.repeat(1_000);
        let packed = zstd::encode_all(text.as_slice(), 3).unwrap();
        for stored in [&text, &packed] {
            let packed = Packed::new(stored);
            assert!(packed.damage.is_none());
            assert_eq!(read(&packed), text);
        }
    }

    #[test]
    fn what_unpacks_to_too_much_is_not_read() {
        let packed = zstd::encode_all(&*vec![b' '; 1 << 20], 3).unwrap();
        assert!(packed.len() < 200);
        let found = Packed::with_max(&packed, 1 << 19);
        assert!(matches!(found.damage, Some(Damage::TooLong)));
        assert!(read(&found).is_empty());
        assert!(Packed::with_max(&packed, 1 << 20).damage.is_none());
    }

    #[test]
    fn what_is_cut_is_read_up_to_there() {
        let text: Vec<u8> = (0..2_000_000_u32).flat_map(|no| (no.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        let packed = zstd::encode_all(text.as_slice(), 3).unwrap();
        let found = Packed::new(&packed[..packed.len() / 2]);
        assert!(matches!(found.damage, Some(Damage::Broken(_))));
        let read = read(&found);
        assert!(!read.is_empty() && text.starts_with(&read));
        assert!(matches!(Packed::new(&packed[..5]).damage, Some(Damage::Broken(_))));
    }
}
