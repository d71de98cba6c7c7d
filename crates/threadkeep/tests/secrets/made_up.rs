//! Secrets that are none.

pub(crate) const DIGITS: &str = "0123456789";
pub(crate) const HEX: &str = "0123456789abcdef";
pub(crate) const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
pub(crate) const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
pub(crate) const ALL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Letters of an alphabet, always the same for the same seed, none of them twice in a row.
pub(crate) fn letters(alphabet: &str, count: usize, seed: u64) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut drawn: Vec<char> = Vec::with_capacity(count);
    while drawn.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let letter = alphabet[usize::try_from(state >> 33).unwrap() % alphabet.len()];
        if drawn.last() != Some(&letter) {
            drawn.push(letter);
        }
    }
    drawn.into_iter().collect()
}

pub(crate) fn aws(seed: u64) -> String {
    ["AK", "IA"].concat() + &letters(UPPER, 16, seed)
}

pub(crate) fn github(seed: u64) -> String {
    ["gh", "p_"].concat() + &letters(ALL, 36, seed)
}

pub(crate) fn pem(seed: u64) -> String {
    let body: Vec<String> = (0..12).map(|line| letters(ALL, 64, seed + line)).collect();
    let fence = |word: &str| format!("{0}{word} RSA {1} KEY{0}", "-".repeat(5), ["PRI", "VATE"].concat());
    format!("{}\n{}\n{}", fence("BEGIN"), body.join("\n"), fence("END"))
}
