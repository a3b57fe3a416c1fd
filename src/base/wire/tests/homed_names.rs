//! The bytes of homed names, and of what came with them: they never change.

use crate::base::wire::{decode, encode};
use crate::causal_log::{LockParts, Op, Wants};
use crate::crdt::{Ownership, OwnershipSums, PartMove};
use crate::replica::{Message, Record};
use geolock_api::names::{DcId, LockName, Mode};

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn homed(home: u8, bytes: &[u8]) -> LockName {
    LockName::homed(dc(home), bytes).expect("valid")
}

/// No bytes, the home, then a name.
const HOMED: [u8; 4] = [0, 2, 1, b'a'];

#[test]
fn bytes_of_homed_names() {
    let plain = LockName::new(b"a").expect("valid");
    assert_eq!(encode("name", &plain).expect("short"), [1, b'a']);
    assert_eq!(encode("name", &homed(2, b"a")).expect("short"), HOMED);
    assert_eq!(decode::<LockName>("name", &HOMED).expect("its own bytes"), homed(2, b"a"));
    // The home is no datacenter, the name behind it is empty, or homed again.
    for wrong in [&[0, 64, 1, b'a'][..], &[0, 2, 0], &[0, 2, 0, 2, 1, b'a'], &[0, 2], &[0]] {
        assert!(decode::<LockName>("name", wrong).is_err(), "{wrong:?}");
    }
    let mut too_long = vec![0, 2, 0xfb, 0x01, 0x04];
    too_long.extend([b'x'; 1025]);
    let error = decode::<LockName>("name", &too_long).expect_err("too long a name");
    assert!(error.to_string().contains("at most 1024 bytes"), "{error}");
}

#[test]
fn they_stand_between_others_without_a_frame() {
    let wants = Wants::all(vec![
        (LockName::new(b"a").expect("valid"), Mode::Shared),
        (homed(2, b"a"), Mode::Exclusive),
        (homed(0, b"a"), Mode::Shared),
    ]);
    let wants = wants.expect("three locks");
    let bytes = encode("wants", &wants).expect("short");
    assert_eq!(bytes, [0, 3, 1, b'a', 0, 0, 0, 1, b'a', 0, 0, 2, 1, b'a', 1]);
    assert_eq!(decode::<Wants>("wants", &bytes).expect("its own bytes"), wants);

    let parts = vec![LockParts { lock: homed(2, b"a"), parts: vec![(dc(1), 3)] }];
    let transfer = Op::Transfer { to: dc(0), parts };
    let bytes = encode("op", &transfer).expect("short");
    assert_eq!(bytes, [2, 0, 1, 0, 2, 1, b'a', 1, 1, 3]);
    assert_eq!(decode::<Op>("op", &bytes).expect("its own bytes"), transfer);

    let ask = Message::AskHolders { query: 1, locks: vec![homed(2, b"a")] };
    assert_eq!(encode("message", &ask).expect("short"), [3, 1, 1, 0, 2, 1, b'a']);
    let record = Record::AllSpeak { version: 300 };
    let bytes = encode("record", &record).expect("short");
    assert_eq!(bytes, [14, 0xfb, 0x2c, 0x01]);
    assert_eq!(decode::<Record>("record", &bytes).expect("its own bytes"), record);
}

#[test]
fn the_map_is_read_as_it_was_written_and_its_sums_tell_homes_apart() {
    let mut maps = [Ownership::new(1), Ownership::new(2), Ownership::new(3)];
    for (map, home) in maps.iter_mut().zip([None, Some(dc(0)), Some(dc(2))]) {
        let lock = LockName::with_home(home, b"a").expect("valid");
        crdts::CmRDT::apply(map, PartMove { lock, part: dc(0), owner: dc(1), version: 1 });
        let bytes = encode("ownership", map).expect("short");
        assert_eq!(decode::<Ownership>("ownership", &bytes).expect("its own bytes"), *map);
    }
    let sums = maps.map(|map| OwnershipSums::of_map(&map).total());
    // Members of version 2 compute the same for a plain name: register, part, bytes.
    assert_eq!(sums[0], xxhash_rust::xxh3::xxh3_128(&[1, 1, 0, 0, 0, 0, 0, 0, 0, b'a']));
    assert!(sums[0] != sums[1] && sums[1] != sums[2]);
}
