//! Payloads that engines and parsers are known to change or to refuse, at random and the same every time.

/// Numbers that look random and are the same every time.
#[derive(Debug, Clone)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// How many of something are tried: as many as the variable says, or what CI has time for. And from which seed on.
pub(crate) fn amount(default: usize) -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let amount = number("THREADKEEP_DIFFERENTIAL").map_or(default, |number| usize::try_from(number).unwrap());
    (amount, number("THREADKEEP_SEED").unwrap_or(1))
}

/// A payload of any kind: odd bytes, odd JSON, random bytes, and now and then one of a megabyte, or one that is nested deeply.
pub(crate) fn payload(numbers: &mut Numbers) -> Vec<u8> {
    match numbers.below(200) {
        0 => {
            let length = 900_000 + numbers.below(200_000);
            numbers.bytes(length)
        }
        1 => format!("\"{}\"", numbers.one(&["x", "é", "\\u0000", "\u{1f600}"]).repeat(250_000)).into_bytes(),
        2 => nested(100_000),
        3..30 => odd(numbers).repeat(1 + numbers.below(3_000)),
        30..70 => {
            let length = numbers.below(6_000);
            numbers.bytes(length)
        }
        70..140 => json(numbers, 0).into_bytes(),
        140..170 => {
            let mut bytes = json(numbers, 0).into_bytes();
            let at = numbers.below(bytes.len());
            bytes[at] = numbers.bytes(1)[0];
            bytes
        }
        _ => odd(numbers).to_vec(),
    }
}

/// JSON in brackets, as deep as this.
fn nested(depth: usize) -> Vec<u8> {
    ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes()
}

fn odd(numbers: &mut Numbers) -> &'static [u8] {
    numbers.one(&[
        b"",
        b"\0",
        b"a\0b",
        br#"{"x":"\u0000"}"#,
        br#"{"x":"\ud83d"}"#,
        br#""\udc00\ud800""#,
        b"\xff\xfe\xc3\x28",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\xf4\x90\x80\x80\xc0\x80",
        b"1e400",
        b"-0",
        b"-0.0e-0",
        b"9223372036854775808",
        b"[18446744073709551616, 0.1, 1E+2, 123456789012345678901234567890]",
        b"NaN",
        br#"{"b":1,"a":1,"a":2, "c" : 1.0}"#,
        b"\\x00 \\000 \\\\",
        b"line\r\nline\rline\n",
        "e\u{301} \u{e9}".as_bytes(),
        b"\xef\xbb\xbf{}",
        b"'\"`$1?1;--/*",
        b"\x1b[31m\x7f\x80",
        "\u{2028}\u{202e}\u{feff}\u{fffe}".as_bytes(),
    ])
}

/// A random JSON text: its strings, numbers and keys are odd ones, and its white space is what it happens to be.
pub(crate) fn json(numbers: &mut Numbers, depth: usize) -> String {
    let space = numbers.one(&["", "", " ", "\t", "\r\n "]);
    let kinds = if depth > 5 { 4 } else { 6 };
    let value = match numbers.below(kinds) {
        0 => numbers
            .one(&[
                "0",
                "-0",
                "-0.0",
                "1e400",
                "1E-400",
                "9223372036854775807",
                "9223372036854775808",
                "0.1",
                "1.0",
                "1e2",
            ])
            .to_owned(),
        1 => numbers.one(&["null", "true", "false"]).to_owned(),
        2 | 3 => string(numbers),
        4 => {
            let parts: Vec<String> = (0..numbers.below(5)).map(|_| json(numbers, depth + 1)).collect();
            format!("[{}]", parts.join(","))
        }
        _ => {
            let parts: Vec<String> = (0..numbers.below(5))
                .map(|_| format!("{}{space}:{}", string(numbers), json(numbers, depth + 1)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
    };
    format!("{space}{value}{space}")
}

/// A JSON string with what is hard to keep.
pub(crate) fn string(numbers: &mut Numbers) -> String {
    let parts = [
        "plain",
        "é",
        "日本語",
        "\u{1f600}",
        "e\u{301}",
        "\u{feff}",
        "\u{2028}",
        "\\u0000",
        "\\ud83d",
        "\\ude00\\ud83d",
        "\\\"",
        "\\\\",
        "\\/",
        "\\n",
        "'; DROP TABLE items; --",
        "%_",
        "$1 ?1",
        "\u{7f}",
        "a",
        "",
    ];
    let text: String = (0..numbers.below(6)).map(|_| parts[numbers.below(parts.len())]).collect();
    format!("\"{text}\"")
}
