//! Compressed rollouts: frames that each hold whole lines and are decompressed alone, so that damage costs the frame it is in.
//!
//! Frames one behind the other are what zstd itself reads as one file. They have no checksums: every line has a sum of its own, and
//! a frame whose checksum fails would cost more than the line that is damaged.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write};

use zstd::stream::raw::{DParameter, Decoder, Operation as _};

const LEVEL: i32 = 3;
/// A frame is ended behind the line with which it has so much text: real threads then are at most a twentieth larger than in one
/// frame, and with a quarter of that up to a fourth.
const FRAME_BYTES: usize = 1 << 20;
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// What is decompressed at once. What a step had decompressed before it failed is lost, so the steps are small.
const STEP_BYTES: usize = 4 << 10;
/// No frame of ours looks back further, and a damaged one must not ask for memory without bound.
const WINDOW_LOG: u32 = 24;
/// After so many frames that can't be read the rest of a file is given up.
const MOST_BROKEN: u32 = 1_000;

/// Writes lines into frames.
pub(crate) struct FrameWriter {
    /// `None` only while one frame is ended and the next begun.
    frame: Option<zstd::Encoder<'static, BufWriter<File>>>,
    bytes: usize,
}

impl FrameWriter {
    pub(crate) fn new(file: BufWriter<File>) -> io::Result<Self> {
        Ok(Self { frame: Some(zstd::Encoder::new(file, LEVEL)?), bytes: 0 })
    }

    /// Writes one or more whole lines.
    pub(crate) fn write_all(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes >= FRAME_BYTES {
            let file = self.take()?.finish()?;
            *self = Self::new(file)?;
        }
        self.bytes += lines.len();
        match &mut self.frame {
            Some(frame) => frame.write_all(lines),
            None => Err(given_up()),
        }
    }

    /// Ends the last frame.
    pub(crate) fn finish(mut self) -> io::Result<BufWriter<File>> {
        self.take()?.finish()
    }

    fn take(&mut self) -> io::Result<zstd::Encoder<'static, BufWriter<File>>> {
        self.frame.take().ok_or_else(given_up)
    }
}

fn given_up() -> io::Error {
    io::Error::other("an earlier write failed")
}

/// Reads what frames hold, and goes on behind those that can't be read.
pub(crate) struct Frames {
    file: BufReader<File>,
    decoder: Decoder<'static>,
    /// Where the frame that is read begins, and how much of the file was read.
    frame: u64,
    read: u64,
    text: Box<[u8]>,
    /// The part of it that nobody has consumed.
    from: usize,
    to: usize,
    /// Whether something between what was consumed and what comes now could not be read.
    is_broken: bool,
    broken: u32,
}

impl Frames {
    pub(crate) fn open(file: File) -> io::Result<Self> {
        let text = vec![0; STEP_BYTES].into_boxed_slice();
        let (frame, read, from, to, is_broken, broken) = (0, 0, 0, 0, false, 0);
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(Self { file, decoder: decoder()?, frame, read, text, from, to, is_broken, broken })
    }

    /// What comes next; nothing at the end of the file, and where something could not be read.
    pub(crate) fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.from == self.to && !self.is_broken {
            let input = self.file.fill_buf()?;
            let is_at_end = input.is_empty();
            if is_at_end && self.read == self.frame {
                break;
            }
            match self.decoder.run_on_buffers(input, &mut self.text) {
                // A frame that needs more than there is was cut.
                Ok(done) if is_at_end && done.bytes_written == 0 => self.skip()?,
                Ok(done) if done.bytes_read + done.bytes_written == 0 => self.skip()?,
                Ok(done) => {
                    self.file.consume(done.bytes_read);
                    self.read += done.bytes_read as u64;
                    (self.from, self.to) = (0, done.bytes_written);
                    if done.remaining == 0 {
                        self.frame = self.read;
                        self.decoder.reinit()?;
                    }
                }
                Err(_) => self.skip()?,
            }
        }
        Ok(self.text.get(self.from..self.to).unwrap_or_default())
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.from = (self.from + bytes).min(self.to);
    }

    /// Whether something could not be read before what comes next; asking goes on behind it.
    pub(crate) fn goes_on_behind(&mut self) -> bool {
        self.from == self.to && std::mem::take(&mut self.is_broken)
    }

    /// Goes to where the next frame may begin, or to the end.
    fn skip(&mut self) -> io::Result<()> {
        self.is_broken = true;
        self.broken += 1;
        self.decoder = decoder()?;
        let mut place = self.frame + 1;
        self.file.seek(SeekFrom::Start(place))?;
        let mut seen = [0; 4];
        let mut count = 0_u64;
        loop {
            let bytes = self.file.fill_buf()?;
            let Some(byte) = bytes.first().copied().filter(|_| self.broken <= MOST_BROKEN) else {
                let end = self.file.seek(SeekFrom::End(0))?;
                (self.frame, self.read) = (end, end);
                return Ok(());
            };
            self.file.consume(1);
            place += 1;
            count += 1;
            seen.rotate_left(1);
            if let Some(last) = seen.last_mut() {
                *last = byte;
            }
            if count >= 4 && seen == MAGIC {
                let start = place - 4;
                self.file.seek(SeekFrom::Start(start))?;
                (self.frame, self.read) = (start, start);
                return Ok(());
            }
        }
    }
}

fn decoder() -> io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::File;
    use std::io::{BufWriter, Write as _};
    use std::path::Path;

    use super::{FRAME_BYTES, FrameWriter, Frames};

    fn line(number: u32) -> Vec<u8> {
        // Numbers that no compressor makes much smaller.
        let words = (0..2_000_u32).map(|word| (number * 2_000 + word).wrapping_mul(2_654_435_761).to_string());
        (words.collect::<String>() + "\n").into_bytes()
    }

    fn write(path: &Path, lines: u32) {
        let mut frames = FrameWriter::new(BufWriter::new(File::create(path).unwrap())).unwrap();
        (0..lines).for_each(|number| frames.write_all(&line(number)).unwrap());
        frames.finish().unwrap().flush().unwrap();
    }

    /// All that can be read, part by part between what could not be.
    fn read(path: &Path) -> Vec<Vec<u8>> {
        let mut frames = Frames::open(File::open(path).unwrap()).unwrap();
        let mut parts = vec![Vec::new()];
        loop {
            let bytes = frames.fill_buf().unwrap().to_vec();
            parts.last_mut().unwrap().extend_from_slice(&bytes);
            frames.consume(bytes.len());
            if bytes.is_empty() {
                if !frames.goes_on_behind() {
                    return parts;
                }
                parts.push(Vec::new());
            }
        }
    }

    #[test]
    fn frames_are_one_file_for_whoever_reads_zstd() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.zst");
        write(&path, 200);
        let all: Vec<u8> = (0..200).flat_map(line).collect();
        assert!(all.len() > 3 * FRAME_BYTES);
        assert!(zstd::decode_all(File::open(&path).unwrap()).unwrap() == all);
        assert!(read(&path) == [all]);
    }

    #[test]
    fn damage_costs_no_more_than_its_frame() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.zst");
        write(&path, 200);
        let whole = std::fs::read(&path).unwrap();
        let frame_text = FRAME_BYTES + line(1).len();
        for place in [0, 3, 4, 9, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[place..(place + 50).min(whole.len())].fill(0xa5);
            std::fs::write(&path, bytes).unwrap();
            let found = read(&path);
            let kept: HashSet<&[u8]> =
                found.iter().flat_map(|part| part.split_inclusive(|byte| *byte == b'\n')).collect();
            let lost: usize =
                (0..200).map(line).filter(|line| !kept.contains(line.as_slice())).map(|line| line.len()).sum();
            assert!(lost <= frame_text, "{lost} bytes of text are lost by damage at {place}");
        }
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = read(&path);
            assert_eq!(found.len() > 1, cut > 0, "that it was cut at {cut} is told");
        }
    }
}
