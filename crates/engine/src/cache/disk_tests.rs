use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::cache::entry::example;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_age(store: &Store, key: &Key, seconds: u64) {
    let file = File::open(store.path(key)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn entries_are_private_and_come_back() {
    let folder = scratch("store");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let (key, bytes) = example(1, 300);
    assert!(store.read(&key).unwrap().is_none());
    store.write(&key, &bytes).unwrap();
    assert_eq!(store.read(&key).unwrap().unwrap(), bytes);
    assert_eq!(fs::metadata(store.folder()).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(store.path(&key)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(describe(&store.path(&key)).unwrap().1.operators, "add.Tensor, mm");
    store.remove(&key);
    assert!(store.read(&key).unwrap().is_none());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_and_files_that_others_may_write_to_are_refused() {
    let folder = scratch("foreign");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let (key, bytes) = example(1, 300);
    store.write(&key, &bytes).unwrap();
    for mode in [0o620, 0o602, 0o666] {
        set_mode(&store.path(&key), mode);
        assert_eq!(store.read(&key).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
    }
    store.remove(&key);
    for place in ["link", "folder"] {
        match place {
            "link" => symlink(folder.join("elsewhere"), store.path(&key)).unwrap(),
            _ => fs::create_dir(store.path(&key)).unwrap(),
        }
        assert!(store.read(&key).is_err(), "{place}");
        let _ = fs::remove_file(store.path(&key));
    }

    set_mode(store.folder(), 0o770);
    assert!(Store::open(&folder, 1).is_err());
    set_mode(store.folder(), 0o700);
    // SAFETY: this has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(store.folder(), Some(12345), None).unwrap();
        let error = Store::open(&folder, 1).err().unwrap();
        assert!(error.to_string().contains("user 12345"), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = scratch("file");
    fs::write(folder.join("file"), "").unwrap();
    assert!(Store::open(&folder.join("file"), 1).is_err());
    fs::write(folder.join(FOLDER), "").unwrap();
    assert!(Store::open(&folder, 1).is_err());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let folder = scratch("full");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let (key, bytes) = example(1, 300);
    // A folder at the path of the entry, so that the last step of writing fails.
    fs::create_dir(store.path(&key)).unwrap();
    assert!(store.write(&key, &bytes).is_err());
    assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_least_recently_used_go_first() {
    let folder = scratch("eviction");
    let examples: Vec<_> = (0..5).map(|seed| example(seed, 1000)).collect();
    let size = examples[0].1.len() as u64;
    let store = Store::open(&folder, size * 4).unwrap();
    for (age, (key, bytes)) in examples[..4].iter().enumerate() {
        assert_eq!(store.write(key, bytes).unwrap(), 0);
        set_age(&store, key, 100 - age as u64);
    }
    // Use the oldest again.
    assert!(store.read(&examples[0].0).unwrap().is_some());
    let evicted = store.write(&examples[4].0, &examples[4].1).unwrap();
    assert_eq!(evicted, 2);
    let left: Vec<bool> = examples.iter().map(|(key, _)| store.read(key).unwrap().is_some()).collect();
    assert_eq!(left, [true, false, false, true, true]);
    assert!(store.list().unwrap().iter().map(|each| each.bytes).sum::<u64>() <= size * 4);

    let (key, large) = example(9, 5000);
    assert_eq!(store.write(&key, &large).unwrap(), 0);
    assert!(store.read(&key).unwrap().is_none(), "larger than the folder may be");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn temporary_files_of_dead_processes_are_removed() {
    let folder = scratch("abandoned");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let [old, new] = ["old", "new"].map(|name| store.folder().join(format!("{TEMPORARY}{name}")));
    for path in [&old, &new] {
        fs::write(path, "half").unwrap();
    }
    File::open(&old).unwrap().set_modified(SystemTime::now() - ABANDONED - ABANDONED).unwrap();
    assert!(store.list().unwrap().is_empty());
    assert!(!old.exists() && new.exists());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_write_passes_over_files_of_dead_processes_with_the_same_id() {
    let folder = scratch("same-id");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let left = |number: u64| store.folder().join(format!("{TEMPORARY}{}-{number}", std::process::id()));
    for number in 0..1000 {
        fs::write(left(number), "half").unwrap();
    }
    let (key, bytes) = example(1, 300);
    store.write(&key, &bytes).unwrap();
    assert_eq!(store.read(&key).unwrap().unwrap(), bytes);
    assert_eq!(fs::read(left(999)).unwrap(), b"half", "it may belong to a process elsewhere that is writing");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn threads_exclude_each_other() {
    let folder = scratch("threads");
    let store = Store::open(&folder, 1 << 20).unwrap();
    let (key, bytes) = example(1, 300);
    let (start, compiles) = (Barrier::new(4), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let lock = store.lock(&key).unwrap();
                while !lock.acquire().unwrap() {
                    thread::sleep(Duration::from_millis(1));
                }
                if store.read(&key).unwrap().is_none() {
                    compiles.fetch_add(1, Relaxed);
                    thread::sleep(Duration::from_millis(20));
                    store.write(&key, &bytes).unwrap();
                }
            });
        }
    });
    assert_eq!(compiles.load(Relaxed), 1);
    let lock = store.lock(&key).unwrap();
    assert!(lock.acquire().unwrap());
    assert!(!store.lock(&key).unwrap().acquire().unwrap());
    assert!(store.lock(&example(2, 0).0).unwrap().acquire().unwrap(), "another program is free");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_lock_ends_with_its_process() {
    let folder = scratch("processes");
    let (key, _) = example(1, 0);
    // This test again, in a process that takes the lock and keeps it.
    if let Ok(folder) = std::env::var("TORCHTPU_TEST_LOCK") {
        let lock = Store::open(Path::new(&folder), 1).unwrap().lock(&key).unwrap();
        assert!(lock.acquire().unwrap());
        fs::write(Path::new(&folder).join("ready"), "").unwrap();
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let store = Store::open(&folder, 1).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cache::disk::tests::a_lock_ends_with_its_process"])
        .env("TORCHTPU_TEST_LOCK", &folder)
        .spawn()
        .unwrap();
    for _ in 0..5000 {
        if folder.join("ready").exists() {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    let lock = store.lock(&key).unwrap();
    assert!(!lock.acquire().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lock.acquire().unwrap());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_lock_ends_where_a_fork_has_its_file() {
    let folder = scratch("forked");
    let store = Store::open(&folder, 1).unwrap();
    let (key, _) = example(1, 0);
    let lock = store.lock(&key).unwrap();
    assert!(lock.acquire().unwrap());
    // A fork has the same open file, as this copy of the descriptor.
    let copy = lock.file.try_clone().unwrap();
    drop(lock);
    assert!(store.lock(&key).unwrap().acquire().unwrap());
    drop(copy);
    fs::remove_dir_all(folder).unwrap();
}
