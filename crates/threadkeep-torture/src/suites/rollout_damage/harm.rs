//! What is done to the bytes of a rollout.

use crate::plan::Random;

/// A block of a disk.
const BLOCK: usize = 4_096;

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    /// One bit is another one.
    Flip,
    /// Some bytes are zeros.
    Zeros,
    /// The end is missing.
    Cut,
    /// A block stands in the place of another one too.
    Twice,
    /// Two blocks stand in each other's place.
    Swapped,
    /// A block of another file stands in the place of one.
    Stranger,
    /// Two lines are one.
    Glued,
    /// A line stands there again, elsewhere.
    Repeated,
    /// Two lines stand in each other's place.
    Reordered,
    /// All lines stand in an order of chance.
    Shuffled,
    /// A line is missing.
    Missing,
    /// A line of another file stands between others.
    Foreign,
    /// A line ends too early, with another one behind it.
    Torn,
}

/// All kinds.
pub(super) const HARMS: [Harm; 16] = [
    Harm::Flip,
    Harm::Flip,
    Harm::Flip,
    Harm::Zeros,
    Harm::Cut,
    Harm::Twice,
    Harm::Swapped,
    Harm::Stranger,
    Harm::Glued,
    Harm::Repeated,
    Harm::Reordered,
    Harm::Shuffled,
    Harm::Missing,
    Harm::Foreign,
    Harm::Torn,
    Harm::Flip,
];

impl Harm {
    /// The kind as it can be done to a file: one that is compressed has no lines.
    pub(super) fn fit(self, is_compressed: bool) -> Option<Self> {
        let by_bytes =
            matches!(self, Self::Flip | Self::Zeros | Self::Cut | Self::Twice | Self::Swapped | Self::Stranger);
        (by_bytes || !is_compressed).then_some(self)
    }

    /// Does it to the bytes, and says where.
    pub(super) fn hurt(self, bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> String {
        match self {
            Self::Flip | Self::Zeros | Self::Cut => self.hurt_bytes(bytes, random),
            Self::Twice | Self::Swapped | Self::Stranger => self.hurt_blocks(bytes, other, random),
            _ => self.hurt_lines(bytes, other, random),
        }
    }

    fn hurt_bytes(self, bytes: &mut Vec<u8>, random: &mut Random) -> String {
        let place = below(random, bytes.len());
        match self {
            Self::Flip => {
                let bit = random.below(8);
                bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << bit);
                format!("bit {bit} of byte {place}")
            }
            Self::Zeros => {
                let length = 1 + below(random, BLOCK);
                bytes.iter_mut().skip(place).take(length).for_each(|byte| *byte = 0);
                format!("{length} zeros from {place}")
            }
            _ => {
                bytes.truncate(place);
                format!("cut after {place} bytes")
            }
        }
    }

    fn hurt_blocks(self, bytes: &mut [u8], other: &[u8], random: &mut Random) -> String {
        // Small files have blocks too.
        let size = if bytes.len() > 4 * BLOCK { BLOCK } else { 512 };
        let mut start = |length: usize| below(random, length.div_ceil(size)) * size;
        let (one, two, strange) = (start(bytes.len()), start(bytes.len()), start(other.len()));
        let length = size.min(bytes.len() - one.min(bytes.len())).min(bytes.len() - two.min(bytes.len()));
        for offset in 0..length {
            let from = match self {
                Self::Stranger => other.get(strange + offset).copied(),
                _ => bytes.get(one + offset).copied(),
            };
            match (self, from) {
                (Self::Swapped, _) => bytes.swap(one + offset, two + offset),
                (_, Some(byte)) => bytes.iter_mut().skip(two + offset).take(1).for_each(|place| *place = byte),
                (_, None) => {}
            }
        }
        format!("{self:?}: {length} bytes at {one} and {two} ({strange})")
    }

    fn hurt_lines(self, bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> String {
        let split = |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let mut lines = split(bytes);
        let (one, two) = (below(random, lines.len()), below(random, lines.len()));
        let foreign = split(other);
        let stranger = foreign.get(below(random, foreign.len())).cloned().unwrap_or_default();
        let is_there = one < lines.len() && two < lines.len();
        match self {
            Self::Shuffled => random.shuffle(&mut lines),
            _ if !is_there => {}
            Self::Glued => {
                lines.iter_mut().skip(one).take(1).for_each(|line| line.truncate(line.len().saturating_sub(1)));
            }
            Self::Repeated => {
                let line = lines.get(one).cloned().unwrap_or_default();
                lines.insert(two, line);
            }
            Self::Reordered => lines.swap(one, two),
            Self::Missing => drop(lines.remove(one)),
            Self::Foreign => lines.insert(one, stranger),
            _ => {
                let cut = lines.get(one).map_or(0, |line| below(random, line.len()));
                lines.iter_mut().skip(one).take(1).for_each(|line| line.truncate(cut));
            }
        }
        *bytes = lines.concat();
        format!("{self:?}: lines {one} and {two}")
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}
