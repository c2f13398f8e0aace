//! Entries: the bytes of an executable, and the data to verify them.

/// Changes whenever the format of entries or the contents of keys change.
pub(super) const FORMAT: u32 = 2;

const MAGIC: &[u8; 8] = b"torchtpu";

/// The end of the checksum and the start of the bytes that it covers.
const CHECKED: usize = MAGIC.len() + 4 + 32;

/// Texts are truncated to this many bytes, so that the first kilobytes of a file contain its description.
const LONGEST_TEXT: usize = 1500;

/// The number of bytes of a file that [`Entry::about`] reads.
pub(super) const HEAD: usize = CHECKED + 32 + 8 + 8 + 2 * LONGEST_TEXT;

/// The hash of a program and of everything that its executable depends on.
pub(super) type Key = blake3::Hash;

/// The description of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The operators in the program.
    pub operators: String,
    /// The plugin and devices that it was compiled for: see [`super::target`].
    pub target: String,
    /// The time that compiling took.
    pub compile_seconds: f64,
}

/// An entry in the format of its file.
pub(super) struct Entry<'a> {
    pub key: Key,
    pub about: About,
    pub executable: &'a [u8],
}

impl<'a> Entry<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.executable.len());
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 32]);
        bytes.extend(self.key.as_bytes());
        bytes.extend(self.about.compile_seconds.to_le_bytes());
        for text in [cut(&self.about.target), cut(&self.about.operators)] {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(self.executable);
        let checksum = blake3::hash(&bytes[CHECKED..]);
        bytes[CHECKED - 32..CHECKED].copy_from_slice(checksum.as_bytes());
        bytes
    }

    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, &'static str> {
        let entry = Entry::head(bytes)?;
        if blake3::hash(&bytes[CHECKED..]).as_bytes() != &bytes[CHECKED - 32..CHECKED] {
            return Err("its checksum is wrong");
        }
        Ok(entry)
    }

    /// The description in an entry, unchecked. The first [`HEAD`] bytes are enough.
    pub fn about(head: &[u8]) -> Result<(Key, About), &'static str> {
        Entry::head(head).map(|entry| (entry.key, entry.about))
    }

    fn head(bytes: &'a [u8]) -> Result<Entry<'a>, &'static str> {
        let mut rest = Reader(bytes);
        if rest.take(MAGIC.len()) != Some(MAGIC) {
            return Err("it is not a compiled program");
        }
        if rest.array().map(u32::from_le_bytes) != Some(FORMAT) {
            return Err("it has another format");
        }
        let entry = (|| {
            rest.take(32)?;
            let key = Key::from_bytes(rest.array()?);
            let compile_seconds = f64::from_le_bytes(rest.array()?);
            let (target, operators) = (rest.text()?, rest.text()?);
            Some(Entry { key, about: About { operators, target, compile_seconds }, executable: rest.0 })
        })();
        entry.ok_or("it is cut short")
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

/// A text truncated to the length that an entry holds.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
pub(super) fn example(seed: u8, length: usize) -> (Key, Vec<u8>) {
    let key = blake3::hash(&[seed]);
    let about =
        About { operators: "add.Tensor, mm".into(), target: "platform test\nplugin a".into(), compile_seconds: 0.5 };
    (key, Entry { key, about, executable: &vec![seed; length] }.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_decoded() {
        let (key, bytes) = example(7, 100);
        let entry = Entry::decode(&bytes).unwrap();
        assert_eq!((entry.key, entry.executable), (key, &[7; 100][..]));
        assert_eq!(entry.about.operators, "add.Tensor, mm");
        assert_eq!(Entry::about(&bytes[..HEAD.min(bytes.len())]).unwrap().1, entry.about);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let (_, bytes) = example(7, 100);
        for length in 0..bytes.len() {
            assert!(Entry::decode(&bytes[..length]).is_err(), "cut to {length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Entry::decode(&damaged).is_err(), "byte {at} of {}", bytes.len());
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Entry::decode(&longer).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let about = About { operators: "é".repeat(2000), target: String::new(), compile_seconds: 0. };
        let bytes = Entry { key: blake3::hash(b""), about, executable: b"" }.encode();
        assert!(bytes.len() <= HEAD);
        assert_eq!(Entry::decode(&bytes).unwrap().about.operators, "é".repeat(LONGEST_TEXT / 2));
    }
}
