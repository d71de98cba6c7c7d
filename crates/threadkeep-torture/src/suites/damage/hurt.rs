//! What is done to the bytes of a file.

use crate::plan::Random;
use crate::suites::damage::pages::PAGE;

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One bit is another one.
    Flip,
    /// The end is missing.
    Cut,
    /// Four kilobytes are zeros.
    Zeros,
    /// A block stands in the place of another one too.
    Twice,
    /// Two blocks stand in each other's place.
    Swapped,
}

/// All kinds; half of what is done are flips.
pub(super) const KINDS: [Kind; 8] =
    [Kind::Flip, Kind::Zeros, Kind::Flip, Kind::Twice, Kind::Flip, Kind::Swapped, Kind::Flip, Kind::Cut];

impl Kind {
    /// Does it to the bytes, and says where.
    pub(super) fn hurt(self, bytes: &mut Vec<u8>, random: &mut Random) -> String {
        let mut at = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap_or(0);
        let blocks = bytes.len().div_ceil(PAGE);
        let (first, second) = (at(blocks), at(blocks));
        let block = |number: usize, length: usize| number * PAGE..((number + 1) * PAGE).min(length);
        let (one, other) = (block(first, bytes.len()), block(second, bytes.len()));
        match self {
            Self::Flip => {
                let (place, bit) = (at(bytes.len()), at(8));
                bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << bit);
                format!("bit {bit} of byte {place}")
            }
            Self::Cut => {
                let length = at(bytes.len());
                bytes.truncate(length);
                format!("cut after {length} bytes")
            }
            Self::Zeros => {
                bytes.iter_mut().skip(one.start).take(PAGE).for_each(|byte| *byte = 0);
                format!("zeros from {}", one.start)
            }
            Self::Twice | Self::Swapped => {
                let is_swap = self == Self::Swapped;
                let length = one.len().min(other.len());
                for offset in 0..length {
                    let (from, to) = (one.start + offset, other.start + offset);
                    match (is_swap, bytes.get(from).copied()) {
                        (true, _) => bytes.swap(from, to),
                        (false, Some(byte)) => bytes.iter_mut().skip(to).take(1).for_each(|place| *place = byte),
                        (false, None) => {}
                    }
                }
                format!("{} {} and {}", if is_swap { "swapped" } else { "twice" }, one.start, other.start)
            }
        }
    }
}
