//! Text like that of coding agents, always the same for the same seed.

use threadkeep::{NewItem, Role};

/// The length of an item's text.
pub const ITEM_BYTES: usize = 1024;

pub(crate) const WORDS: &str = "the of to and a in is it that for on with as this by be not or are from at an if but when which can has \
    was will would should could there their then than so more after before because while where only also into over under \
    about error test file line value type function module crate thread item branch parent head store write read open close \
    append commit lock queue timeout retry index table column row key hash digest path cursor page limit order sort filter \
    request response server client handler config option default user token session message prompt answer tool call result \
    output input buffer stream socket parser lexer syntax tree node leaf edge graph merge rebase patch diff review change \
    update remove insert delete rename move copy check verify build release debug compile link cargo clippy format lint \
    async await future task spawn runtime worker pool channel sender receiver mutex atomic clone borrow lifetime trait \
    impl struct enum match return let mut self string bytes slice vector option unwrap panic assert expect fixture mock \
    clock random seed sample median latency throughput memory cache disk sync flush barrier crash recover replay snapshot \
    login password account email button layout render component state effect hook props schema query migration version \
    looks failing because suggests first second another likely probably instead however therefore fix fails passes wrong \
    missing unexpected duplicate empty invalid stale flaky slow fast large small new old same other both each every none";

/// Pseudo-random numbers, always the same for the same seed.
#[derive(Debug, Clone)]
pub struct Chance(u64);

/// Writes pseudo-random text.
#[derive(Debug, Clone)]
pub struct Writer {
    chance: Chance,
    words: Vec<&'static str>,
}

impl Chance {
    /// Numbers that depend on the seed alone.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next random number.
    pub fn number(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.number() % bound).unwrap_or_default()
    }
}

impl Writer {
    /// A writer whose text depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), words: WORDS.split_ascii_whitespace().collect() }
    }

    /// The next random number.
    pub fn number(&mut self) -> u64 {
        self.chance.number()
    }

    /// A random number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.chance.below(bound)
    }

    /// Random bytes, for what stands for digests.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for chunk in out.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(self.number().to_le_bytes()) {
                *to = from;
            }
        }
        out
    }

    /// A message of [`ITEM_BYTES`] of text.
    pub fn item(&mut self) -> NewItem {
        let (role, text) = match self.below(4) {
            0 => (Role::User, self.text(ITEM_BYTES)),
            _ => (Role::Assistant, self.text(ITEM_BYTES)),
        };
        NewItem::message(role, text)
    }

    /// Several of them.
    pub fn items(&mut self, count: usize) -> Vec<NewItem> {
        (0..count).map(|_| self.item()).collect()
    }

    /// A title of a few words.
    pub fn title(&mut self, number: u32) -> String {
        format!("{} the {} {} ({number})", self.word(), self.word(), self.word())
    }

    /// ASCII text of this length: sentences, code, paths and what tools print.
    pub fn text(&mut self, bytes: usize) -> String {
        let mut out = String::with_capacity(bytes + 128);
        while out.len() < bytes {
            match self.below(8) {
                0..=3 => self.sentence(&mut out),
                4 | 5 => self.code(&mut out),
                6 => self.place(&mut out),
                _ => self.log(&mut out),
            }
        }
        out.truncate(bytes);
        out
    }

    /// A word; the first ones of the list come most often.
    fn word(&mut self) -> &'static str {
        let (a, b) = (self.below(self.words.len()), self.below(self.words.len()));
        self.words.get(a.min(b)).copied().unwrap_or_default()
    }

    fn sentence(&mut self, out: &mut String) {
        for index in 0..6 + self.below(10) {
            out.push_str(if index == 0 { "" } else { " " });
            out.push_str(self.word());
        }
        out.push_str(if self.below(3) == 0 { ".\n" } else { ". " });
    }

    fn name(&mut self, out: &mut String) {
        out.push_str(self.word());
        for _ in 0..self.below(3) {
            out.push('_');
            out.push_str(self.word());
        }
    }

    fn code(&mut self, out: &mut String) {
        out.push_str("\n    let ");
        self.name(out);
        out.push_str(" = ");
        self.name(out);
        out.push('(');
        self.name(out);
        out.push_str(&format!(", {})?;\n", self.below(10_000)));
    }

    fn place(&mut self, out: &mut String) {
        out.push_str("src/");
        self.name(out);
        out.push('/');
        self.name(out);
        out.push_str(&format!(".rs:{}:{}: ", self.below(900), self.below(90)));
    }

    fn log(&mut self, out: &mut String) {
        let number = self.number();
        out.push_str(&format!("\n{:02}:{:02} [{:08x}] ", number % 24, number % 60, number >> 32));
        self.name(out);
        out.push('=');
        out.push_str(self.word());
    }
}

#[cfg(test)]
mod tests {
    use super::{ITEM_BYTES, Writer};

    #[test]
    fn the_text_is_the_same_each_time_and_compresses_like_text() {
        let text = Writer::new(7).text(ITEM_BYTES);
        assert_eq!(text, Writer::new(7).text(ITEM_BYTES));
        assert_ne!(text, Writer::new(8).text(ITEM_BYTES));
        let small = zstd::bulk::compress(text.as_bytes(), 3).unwrap().len();
        assert!((400..750).contains(&small), "{small} of {ITEM_BYTES} bytes");
    }
}
