//! Masking: secrets are looked for in every form that a text has, and replaced in the text as it is written.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::item::MAX_CONTENT_BYTES;
use crate::secrets::decode::{Places, decoded};
use crate::secrets::json::{self, Region, Strings};
use crate::secrets::{Found, Masked, Rules, Spot, marker};

/// How deep strings within strings are searched …
const MOST_LEVELS: u32 = 8;
/// … and how deep in a string of more than this size, because each level may hold the string once more in memory.
const LARGE: usize = 16 << 20;
const LEVELS_OF_LARGE: u32 = 2;
/// What is masked may show another secret around it. More often than this only rules do it that find the marker itself …
const MOST_ROUNDS: usize = 6;
/// … and then the text grows without end. Markers in the place of short secrets let it grow by less.
const MOST_GROWTH: usize = 16;
const ALWAYS_ROOM: usize = 1 << 10;

/// What stands around the digits of bytes that JSON has no other form for: an import writes the rows of databases so.
const BYTES_BEGIN: &[u8] = b"{\"hex\":\"";
const BYTES_END: &[u8] = b"\"}";

/// A part of a text that a marker takes the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    range: Range<usize>,
    rule: usize,
    /// Set for a number or a name: the marker then needs quotes, which stand in so many strings.
    quotes: Option<u32>,
    /// So many times over, what is replaced stands as digits of bytes.
    in_digits: u32,
}

/// What has to go from a text.
#[derive(Debug, Default)]
struct Search {
    pieces: Vec<Piece>,
    /// Whether something was found that consists of nothing that can be replaced: only of what JSON is built of.
    is_stuck: bool,
}

pub(super) fn mask(rules: &Rules, given: &[u8]) -> Masked {
    let mut bytes = Cow::Borrowed(given);
    let mut found = Vec::new();
    for round in 0..MOST_ROUNDS {
        let search = search(rules, &bytes, 0);
        let pieces = merged(search.pieces);
        if pieces.is_empty() {
            return finish(given, bytes, found, search.is_stuck);
        }
        if round == 0 {
            let of_piece = |piece: &Piece| Found { rule: rules.id(piece.rule), range: piece.range.clone() };
            found = pieces.iter().map(of_piece).collect();
        }
        bytes = Cow::Owned(replaced(rules, &bytes, &pieces));
        let most = given.len().saturating_mul(MOST_GROWTH).saturating_add(ALWAYS_ROOM);
        if bytes.len() > most.min(MAX_CONTENT_BYTES.max(given.len())) {
            break;
        }
    }
    Masked::CannotMask
}

/// The answer, when nothing is found any more that could be replaced.
fn finish(given: &[u8], bytes: Cow<'_, [u8]>, found: Vec<Found>, is_stuck: bool) -> Masked {
    match bytes {
        _ if is_stuck => Masked::CannotMask,
        Cow::Borrowed(_) => Masked::NothingFound,
        Cow::Owned(bytes) if json::shape(given) == json::shape(&bytes) => Masked::Masked { bytes, found },
        Cow::Owned(_) => Masked::CannotMask,
    }
}

/// Looks through every form of a text.
fn search(rules: &Rules, text: &[u8], level: u32) -> Search {
    let mut search = Search::default();
    if text.len() < rules.set.shortest {
        return search;
    }
    let spots = rules.spots(text);
    let mut reached = vec![false; spots.len()];
    let mut settled = 0;
    for region in json::regions(text) {
        // What goes on beyond the region's end concerns the next one too.
        let begun = spots.partition_point(|spot| spot.range.start < region.range.end);
        let here = settled..begun.max(settled);
        let spots_here = spots.get(here.clone()).unwrap_or_default();
        let reached_here = reached.get_mut(here).unwrap_or_default();
        match region.is_json {
            true => in_json(rules, text, &region, (spots_here, reached_here), level, &mut search),
            false => in_words(rules, text, &region, (spots_here, reached_here), level, &mut search),
        }
        settled += spots_here.iter().take_while(|spot| spot.range.end <= region.range.end).count();
    }
    search.is_stuck |= reached.contains(&false);
    search
}

/// In JSON only what strings hold is replaced, and whole numbers and names.
fn in_json(
    rules: &Rules,
    text: &[u8],
    region: &Region,
    (spots, reached): (&[Spot], &mut [bool]),
    level: u32,
    search: &mut Search,
) {
    let (mut settled, mut outside) = (0, region.range.start);
    let mut cover = |part: Range<usize>, is_string: bool, pieces: &mut Vec<Piece>| {
        let begun = spots.partition_point(|spot| spot.range.start < part.end);
        for (spot, reached) in spots.iter().zip(reached.iter_mut()).take(begun).skip(settled) {
            let common = spot.range.start.max(part.start)..spot.range.end.min(part.end);
            if common.is_empty() {
                continue;
            }
            let before = pieces.len();
            if is_string {
                pieces.push(Piece {
                    range: whole_escapes(text, &part, common),
                    rule: spot.rule,
                    quotes: None,
                    in_digits: 0,
                });
            } else {
                let scalars = json::scalars(text, common, &part).into_iter();
                pieces.extend(scalars.map(|range| Piece { range, rule: spot.rule, quotes: Some(0), in_digits: 0 }));
            }
            *reached |= pieces.len() > before;
        }
        settled += spots.iter().skip(settled).take_while(|spot| spot.range.end <= part.end).count();
    };
    for string in Strings::new(text, &region.range) {
        cover(outside..string.start - 1, false, &mut search.pieces);
        cover(string.clone(), true, &mut search.pieces);
        outside = string.end + 1;
        below(rules, text, &string, level, search);
        in_bytes(rules, text, &string, level, search);
    }
    cover(outside..region.range.end, false, &mut search.pieces);
}

/// In words a secret is replaced as it stands.
fn in_words(
    rules: &Rules,
    text: &[u8],
    region: &Region,
    (spots, reached): (&[Spot], &mut [bool]),
    level: u32,
    search: &mut Search,
) {
    for (spot, reached) in spots.iter().zip(reached) {
        let range = spot.range.start.max(region.range.start)..spot.range.end.min(region.range.end);
        if !range.is_empty() {
            *reached = true;
            let range = whole_letters(text, &region.range, range);
            search.pieces.push(Piece { range, rule: spot.rule, quotes: None, in_digits: 0 });
        }
    }
    // Without an escape it was searched just now.
    let words = text.get(region.range.clone()).unwrap_or_default();
    deeper(rules, words, region.range.start, level, search);
}

/// Searches what a string says.
fn below(rules: &Rules, text: &[u8], string: &Range<usize>, level: u32, search: &mut Search) {
    let written = text.get(string.clone()).unwrap_or_default();
    if deeper(rules, written, string.start, level, search) {
        return;
    }
    // Without an escape there is no string in it; but where it begins and ends may make a difference.
    search.pieces.extend(rules.spots(written).into_iter().map(|spot| {
        let range = string.start + spot.range.start..string.start + spot.range.end;
        Piece { range: whole_letters(text, string, range), rule: spot.rule, quotes: None, in_digits: 0 }
    }));
}

/// Searches the bytes that a string writes in hexadecimal: `{"hex":"6279746573"}`.
fn in_bytes(rules: &Rules, text: &[u8], string: &Range<usize>, level: u32, search: &mut Search) {
    let written = text.get(string.clone()).unwrap_or_default();
    let begins = text.get(..string.start).is_some_and(|before| before.ends_with(BYTES_BEGIN));
    let is_bytes = begins && text.get(string.end..).is_some_and(|after| after.starts_with(BYTES_END));
    if !is_bytes || written.len() / 2 < rules.set.shortest || !goes_on(written, level) {
        return;
    }
    let Ok(bytes) = HEXLOWER_PERMISSIVE.decode(written) else { return };
    let inner = self::search(rules, &bytes, level + 1);
    search.is_stuck |= inner.is_stuck;
    search.pieces.extend(inner.pieces.into_iter().map(|piece| {
        let range = string.start + 2 * piece.range.start..string.start + 2 * piece.range.end;
        Piece { range, in_digits: piece.in_digits + 1, ..piece }
    }));
}

/// Searches what a text says when its escapes are undone; says whether it has any.
fn deeper(rules: &Rules, written: &[u8], base: usize, level: u32, search: &mut Search) -> bool {
    if written.len() < rules.set.shortest || !goes_on(written, level) {
        return false;
    }
    let Some(decoded) = decoded(written) else { return false };
    let inner = self::search(rules, &decoded, level + 1);
    drop(decoded);
    search.is_stuck |= inner.is_stuck;
    lift(written, base, inner.pieces, &mut search.pieces);
    true
}

fn goes_on(text: &[u8], level: u32) -> bool {
    level < if text.len() > LARGE { LEVELS_OF_LARGE } else { MOST_LEVELS }
}

/// Takes pieces of the decoded text to where they are written.
fn lift(written: &[u8], base: usize, mut inner: Vec<Piece>, pieces: &mut Vec<Piece>) {
    inner.sort_by_key(|piece| piece.range.start);
    let mut places = Places::new(written);
    for piece in &mut inner {
        piece.range.start = base + places.start(piece.range.start);
    }
    inner.sort_by_key(|piece| piece.range.end);
    let mut places = Places::new(written);
    for piece in &mut inner {
        piece.range.end = base + places.end(piece.range.end);
        // Digits need no escapes.
        piece.quotes = piece.quotes.map(|quotes| quotes + u32::from(piece.in_digits == 0));
    }
    pieces.append(&mut inner);
}

/// Widens a part of a string to whole escapes.
fn whole_escapes(text: &[u8], string: &Range<usize>, range: Range<usize>) -> Range<usize> {
    let written = text.get(string.clone()).unwrap_or_default();
    let around = |at: usize| escape_around(written, at - string.start);
    let start = around(range.start).map_or(range.start, |escape| string.start + escape.start);
    let end = around(range.end).map_or(range.end, |escape| string.start + escape.end);
    whole_letters(text, string, start..end)
}

/// The escape that this place of a string is inside of.
fn escape_around(string: &[u8], place: usize) -> Option<Range<usize>> {
    let from = place.saturating_sub(5);
    let last = from + string.get(from..place)?.iter().rposition(|byte| *byte == b'\\')?;
    let before = string.get(..last)?.iter().rev().take_while(|byte| **byte == b'\\').count();
    let length = if string.get(last + 1) == Some(&b'u') { 6 } else { 2 };
    // After an odd number of backslashes this one is what an escape stands for.
    (before % 2 == 0 && last + length > place).then(|| last..string.len().min(last + length))
}

/// Widens a part of a text to whole letters of UTF-8.
fn whole_letters(text: &[u8], within: &Range<usize>, range: Range<usize>) -> Range<usize> {
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let (mut start, mut end) = (range.start, range.end);
    for _ in 0..3 {
        start -= usize::from(start > within.start && is_inside(start));
        end += usize::from(end < within.end && is_inside(end));
    }
    start..end
}

/// Puts the pieces in order, and makes one of those that overlap.
fn merged(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.retain(|piece| !piece.range.is_empty());
    pieces.sort_by_key(|piece| (piece.range.start, std::cmp::Reverse(piece.range.end), piece.rule));
    let mut merged: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match merged.last_mut() {
            Some(last) if piece.range.start < last.range.end => {
                // A number has quotes as long as the marker takes the place of the number and of nothing else.
                let quotes = match piece.range.end.cmp(&last.range.end) {
                    // Where a rule finds something in digits of bytes as they stand, they become the words of a string.
                    _ if piece.in_digits != last.in_digits => None,
                    _ if piece.range == last.range => last.quotes.max(piece.quotes),
                    Ordering::Less | Ordering::Equal => last.quotes,
                    Ordering::Greater => None,
                };
                let range = last.range.start..last.range.end.max(piece.range.end);
                *last = Piece { range, quotes, in_digits: last.in_digits.min(piece.in_digits), ..*last };
            }
            _ => merged.push(piece),
        }
    }
    merged
}

fn replaced(rules: &Rules, text: &[u8], pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for piece in pieces {
        out.extend_from_slice(text.get(at..piece.range.start).unwrap_or_default());
        let quote = piece.quotes.map_or(Cow::Borrowed(""), quote);
        let marker = format!("{quote}{}{quote}", marker::of(&rules.id(piece.rule)));
        let marker = (0..piece.in_digits).fold(marker, |written, _| HEXLOWER.encode(written.as_bytes()));
        out.extend_from_slice(marker.as_bytes());
        at = piece.range.end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    out
}

/// A quote inside of so many strings.
fn quote(levels: u32) -> Cow<'static, str> {
    let backslashes = 2_usize.pow(levels.min(MOST_LEVELS)) - 1;
    Cow::Owned("\\".repeat(backslashes) + "\"")
}
