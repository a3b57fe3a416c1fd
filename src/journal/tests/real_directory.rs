//! Tests on the real file system: ownership, identity, permissions, and that everything works there, too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use geolock_api::names::{ClusterId, DcId};

use super::super::contents::Contents;
use super::super::error::JournalError;
use super::super::handle::{Journal, JournalEvent, JournalOptions};
use super::{Held, identity, record, records};

fn options(dir: &Path) -> JournalOptions {
    JournalOptions {
        segment_bytes: 10_000,
        ..JournalOptions::new(dir.to_owned(), identity().cluster, identity().dc)
    }
}

fn reopen(dir: &Path) -> Held {
    Journal::open(options(dir), |_| {}).expect("a good directory").1.into()
}

#[test]
fn what_was_appended_is_there_again() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path().join("a/b/data");
    let (sender, events) = channel();
    let (mut journal, recovered) =
        Journal::open(options(&dir), move |event| sender.send(event).expect("the test listens"))
            .expect("a new directory");
    assert_eq!(Held::from(recovered), Held::default());
    (1..=2_000).for_each(|position| journal.append(position, &record(position)));
    journal.checkpoint(1_500, b"half".to_vec());
    let done = |event: JournalEvent| matches!(event, JournalEvent::CheckpointDone { position: 1_500, .. });
    assert!(events.iter().any(done));
    journal.close().expect("nothing failed");

    let recovered = reopen(&dir);
    assert_eq!(recovered.checkpoint, Some((1_500, b"half".to_vec())));
    assert_eq!(recovered.records, records(1_501..=2_000));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).expect("lists") {
        assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
    }
}

/// Every file of the directory, with its bytes.
fn bytes(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).expect("lists").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        paths.map(|path| (path.clone(), fs::read(path).expect("it is readable"))).collect();
    files.sort();
    files
}

#[test]
fn a_directory_is_read_without_a_change() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path();
    assert!(matches!(Contents::read(dir), Err(JournalError::NoData { .. })));
    let (sender, events) = channel();
    let (mut journal, _) =
        Journal::open(options(dir), move |event| sender.send(event).expect("the test listens"))
            .expect("a new directory");
    (1..=300).for_each(|position| journal.append(position, &record(position)));
    journal.checkpoint(100, b"some".to_vec());
    let done = |event: JournalEvent| matches!(event, JournalEvent::CheckpointDone { position: 100, .. });
    assert!(events.iter().any(done));
    assert!(matches!(Contents::read(dir), Err(JournalError::InUse { .. })));
    journal.close().expect("nothing failed");

    // A batch that was being written when the server died.
    let mut segments: Vec<_> = fs::read_dir(dir)
        .expect("lists")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    segments.sort();
    let newest = segments.last().expect("there is a segment");
    let mut all = fs::read(newest).expect("it is readable");
    all.extend([1; 50]);
    fs::write(newest, all).expect("there is room");
    fs::write(dir.join("00000000000000000900.checkpoint"), b"damaged").expect("there is room");

    let before = bytes(dir);
    let contents = Contents::read(dir).expect("a good directory");
    assert_eq!((contents.identity, contents.checkpoint), (identity(), Some(b"some".to_vec())));
    assert_eq!(super::read(contents.records), records(101..=300));
    assert_eq!(bytes(dir), before);
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (journal, _) = Journal::open(options(temp.path()), |_| {}).expect("a new directory");
    let second = Journal::open(options(temp.path()), |_| {});
    assert!(matches!(second, Err(JournalError::AlreadyInUse { .. })));
    journal.close().expect("nothing failed");
    reopen(temp.path());
}

#[test]
fn a_directory_of_another_cluster_or_datacenter_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    reopen(temp.path());
    let other_dc = JournalOptions { dc: DcId::new(2).expect("small"), ..options(temp.path()) };
    let other_cluster = JournalOptions { cluster: ClusterId::of("production"), ..options(temp.path()) };
    for other in [other_dc, other_cluster] {
        // The segments name their owner, too, when the identity file is gone.
        for removed in [None, Some("identity")] {
            let copy = tempfile::tempdir().expect("a temporary directory");
            for entry in fs::read_dir(temp.path()).expect("lists") {
                let entry = entry.expect("an entry");
                if entry.file_name().to_str() != removed {
                    fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copies");
                }
            }
            let other = JournalOptions { dir: copy.path().to_owned(), ..other.clone() };
            let Err(error @ JournalError::WrongIdentity { .. }) = Journal::open(other, |_| {}).map(|_| ())
            else {
                panic!("not refused")
            };
            assert!(error.to_string().contains("dc1 of cluster"), "{error}");
        }
    }
    assert_eq!(reopen(temp.path()), Held::default());
}

#[test]
fn a_directory_of_a_later_release_is_named_so() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    reopen(temp.path());
    let identity = temp.path().join("identity");
    let text = fs::read_to_string(&identity).expect("it is text");
    fs::write(&identity, text.replace("format 1", "format 2")).expect("it is written");
    let error = Journal::open(options(temp.path()), |_| {}).map(|_| ()).expect_err("too new");
    assert!(matches!(error, JournalError::UnknownVersion { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_copy_is_known_as_one_until_that_is_on_disk() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    assert!(!reopen(temp.path()).restored);
    let mark = temp.path().join("restored");
    fs::write(&mark, b"").expect("it can be written");
    assert!(reopen(temp.path()).restored);
    assert!(reopen(temp.path()).restored, "nothing was written");
    let (sender, events) = channel();
    let (mut journal, recovered) =
        Journal::open(options(temp.path()), move |event| sender.send(event).expect("the test listens"))
            .expect("a good directory");
    assert!(recovered.restored);
    journal.append(1, &record(1));
    assert!(events.iter().any(|event| matches!(event, JournalEvent::Durable(1))));
    journal.close().expect("nothing failed");
    assert!(!mark.exists());
    assert!(!reopen(temp.path()).restored);
}

#[test]
fn somebody_may_take_the_mark_of_a_copy_away_before_the_server_does() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let mark = temp.path().join("restored");
    fs::write(&mark, b"").expect("it can be written");
    let (sender, events) = channel();
    let (mut journal, recovered) =
        Journal::open(options(temp.path()), move |event| sender.send(event).expect("the test listens"))
            .expect("a good directory");
    assert!(recovered.restored);
    fs::remove_file(&mark).expect("it was there");
    journal.append(1, &record(1));
    assert!(events.iter().any(|event| matches!(event, JournalEvent::Durable(1))));
    journal.close().expect("nothing failed");
}
