//! Bundles: cache entries in one file, for the cache of another machine.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::disk::Store;
use super::entry::Entry;

const MAGIC: &[u8] = b"torchtpu bundle 1\n";

/// Larger than any executable. A greater length means that the file is not a bundle of ours.
const LONGEST: u64 = 1 << 36;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    pub added: usize,
    /// Entries that the folder already had.
    pub known: usize,
    /// Entries that were damaged.
    pub damaged: usize,
    /// Entries for another target, and each difference between the targets once.
    pub refused: usize,
    pub differences: Vec<String>,
}

/// Writes the bytes of entries into a bundle. Returns their number.
pub(super) fn write(path: &Path, entries: impl Iterator<Item = Vec<u8>>) -> io::Result<usize> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(MAGIC)?;
    let mut count = 0;
    for entry in entries {
        file.write_all(&(entry.len() as u64).to_le_bytes())?;
        file.write_all(&entry)?;
        count += 1;
    }
    file.flush()?;
    Ok(count)
}

/// Adds the entries of a bundle that are for `target` to a store.
pub(super) fn import(path: &Path, store: &Store, target: &str) -> io::Result<Imported> {
    let mut file = BufReader::new(File::open(path)?);
    let mut magic = vec![0; MAGIC.len()];
    if file.read_exact(&mut magic).is_err() || magic != MAGIC {
        return Err(io::Error::other(format!("{} is not a bundle of compiled programs", path.display())));
    }
    let mut imported = Imported::default();
    let mut length = [0; 8];
    while file.read(&mut length[..1])? == 1 {
        let mut bytes = Vec::new();
        let whole = file.read_exact(&mut length[1..]).is_ok() && {
            let length = u64::from_le_bytes(length);
            length < LONGEST && file.by_ref().take(length).read_to_end(&mut bytes)? as u64 == length
        };
        match Entry::decode(&bytes) {
            _ if !whole => imported.damaged += 1,
            Err(_) => imported.damaged += 1,
            Ok(entry) if entry.about.target != target => {
                imported.refused += 1;
                let difference = difference(&entry.about.target, target);
                if !imported.differences.contains(&difference) {
                    imported.differences.push(difference);
                }
            }
            Ok(entry) if store.read(&entry.key)?.is_some_and(|known| Entry::decode(&known).is_ok()) => {
                imported.known += 1;
            }
            Ok(entry) => {
                store.write(&entry.key, &bytes)?;
                imported.added += 1;
            }
        }
        if !whole {
            break;
        }
    }
    Ok(imported)
}

/// The first lines in which two targets differ.
fn difference(theirs: &str, ours: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (theirs, ours) = (lines(theirs), lines(ours));
    let other = |lines: &[String], than: &[String]| {
        lines.iter().find(|line| !than.contains(line)).cloned().unwrap_or_else(|| "nothing of that kind".into())
    };
    format!("made for {}; here is {}", other(&theirs, &ours), other(&ours, &theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::disk;
    use crate::cache::entry::example;

    const HERE: &str = "platform test\nplugin a";

    #[test]
    fn bundles_are_exported_and_imported() {
        let folder = disk::scratch("bundle");
        let bundle = folder.join("bundle");
        let examples: Vec<_> = (0..3).map(|seed| example(seed, 50)).collect();
        assert_eq!(write(&bundle, examples.iter().map(|(_, bytes)| bytes.clone())).unwrap(), examples.len());

        let store = Store::open(&folder, 1 << 20).unwrap();
        let (key, bytes) = &examples[0];
        store.write(key, bytes).unwrap();
        let imported = import(&bundle, &store, HERE).unwrap();
        assert_eq!((imported.added, imported.known, imported.damaged, imported.refused), (2, 1, 0, 0));
        for (key, bytes) in &examples {
            assert_eq!(store.read(key).unwrap().as_ref(), Some(bytes));
        }

        let elsewhere = Store::open(&folder.join("elsewhere"), 1 << 20).unwrap();
        let refused = import(&bundle, &elsewhere, "platform test\nplugin b").unwrap();
        assert_eq!((refused.added, refused.refused), (0, 3));
        assert_eq!(refused.differences, ["made for plugin a; here is plugin b"]);
        assert!(elsewhere.list().unwrap().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn intact_entries_of_damaged_bundles_are_imported() {
        let folder = disk::scratch("damaged-bundle");
        let bundle = folder.join("bundle");
        let examples: Vec<_> = (0..2).map(|seed| example(seed, 50)).collect();
        assert_eq!(write(&bundle, examples.iter().map(|(_, bytes)| bytes.clone())).unwrap(), examples.len());
        let bytes = std::fs::read(&bundle).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&bundle, &bytes[..length]).unwrap();
            let store = Store::open(&folder.join("into"), 1 << 20).unwrap();
            match import(&bundle, &store, HERE) {
                Ok(imported) => assert!(imported.added + imported.known < 2, "cut to {length} bytes"),
                Err(error) => assert!(error.to_string().contains("not a bundle"), "{error}"),
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
