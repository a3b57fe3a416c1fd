//! All that encoding accepts, decoding reads, for values of every kind; and no length that is claimed is
//! believed.

use bytes::Bytes;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::base::wire::{MAX_FRAME, decode, encode};
use crate::replica::Message;

/// A value of every kind that a type of wire or disk may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Any {
    Nothing,
    Bool(bool),
    Tiny(u8, i8),
    Short(u16, i16),
    Word(u32, i32),
    Long(u64, i64),
    Huge(u128, i128),
    Real(f32, f64),
    Char(char),
    Text(String),
    Bytes(Bytes),
    Fixed([u8; 16]),
    Maybe(Option<Box<Any>>),
    List(Vec<Any>),
    Pair { left: Box<Any>, right: Box<Any> },
}

fn value() -> impl Strategy<Value = Any> {
    let leaf = prop_oneof![
        Just(Any::Nothing),
        any::<bool>().prop_map(Any::Bool),
        any::<(u8, i8)>().prop_map(|(a, b)| Any::Tiny(a, b)),
        any::<(u16, i16)>().prop_map(|(a, b)| Any::Short(a % 300, b % 200)),
        any::<(u32, i32)>().prop_map(|(a, b)| Any::Word(a % 300, b % 200)),
        any::<(u64, i64)>().prop_map(|(a, b)| Any::Long(a % 300, b % 200)),
        any::<(u64, i64)>().prop_map(|(a, b)| Any::Long(a, b)),
        any::<(u8, i8)>().prop_map(|(a, b)| Any::Huge(a.into(), b.into())),
        any::<(u128, i128)>().prop_map(|(a, b)| Any::Huge(a, b)),
        (-9.0..9.0_f32, -9.0..9.0_f64).prop_map(|(a, b)| Any::Real(a, b)),
        any::<char>().prop_map(Any::Char),
        ".{0,9}".prop_map(Any::Text),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Any::Bytes(bytes.into())),
        any::<[u8; 16]>().prop_map(Any::Fixed),
    ];
    leaf.prop_recursive(5, 200, 20, |inner| {
        prop_oneof![
            proptest::option::of(inner.clone()).prop_map(|it| Any::Maybe(it.map(Box::new))),
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Any::List),
            (inner.clone(), inner)
                .prop_map(|(left, right)| Any::Pair { left: Box::new(left), right: Box::new(right) }),
        ]
    })
}

proptest! {
    /// The codec's budget is in proportion to the bytes, so it is as tight here as at the limit.
    #[test]
    fn encoded_values_are_decoded(value in value()) {
        let bytes = encode("value", &value).expect("it is small");
        prop_assert_eq!(decode::<Any>("value", &bytes).expect("its own bytes"), value);
    }
}

/// Asserts that the largest list of this element that is encoded is decoded, and one more is refused.
fn fills_a_frame<T>(element: T)
where
    T: Clone + PartialEq + Serialize + serde::de::DeserializeOwned,
{
    let one = encode("element", &element).expect("it is small").len();
    // The length of a list of up to 2^32 elements takes five bytes, and the last element may not fill up.
    let fits = vec![element.clone(); (MAX_FRAME - 5) / one];
    let bytes = encode("list", &fits).expect("it fits");
    assert!(decode::<Vec<T>>("list", &bytes).expect("its own bytes") == fits, "elements of {one} bytes");
    let refused = encode("list", &vec![element; MAX_FRAME / one + 1]).expect_err("it is one too many");
    assert!(refused.to_string().ends_with("the limit is 8388608"), "{refused}");
}

#[test]
fn lists_of_the_smallest_elements_of_each_kind_fill_a_frame() {
    fills_a_frame(7_u64);
    fills_a_frame(7_u128);
    fills_a_frame(String::new());
    fills_a_frame(Bytes::from_static(b"abc"));
    fills_a_frame((7_u64, Some(7_u64)));
}

#[test]
fn a_length_beyond_the_bytes_is_refused() {
    // Text and bytes are allocated before they are read: 2^30 bytes are claimed, and none follows.
    let mut claimed = vec![0xfc];
    claimed.extend((1_u32 << 30).to_le_bytes());
    for refused in [decode::<String>("text", &claimed).err(), decode::<Bytes>("bytes", &claimed).err()] {
        let refused = refused.expect("nothing follows").to_string();
        assert!(refused.contains("LimitExceeded"), "{refused}");
    }
}

#[test]
fn lengths_from_outside_allocate_nothing() {
    // A list of 2^62 entries, none of which follows.
    let mut bytes = vec![1, 0xfd];
    bytes.extend((1_u64 << 62).to_le_bytes());
    assert!(decode::<Message>("message", &bytes).is_err());
    // A lock name of 1025 bytes, one too long.
    let mut bytes = vec![3, 1, 1, 0xfb, 0x01, 0x04];
    bytes.extend([b'x'; 1025]);
    let error = decode::<Message>("message", &bytes).expect_err("too long a name");
    assert!(error.to_string().contains("at most 1024 bytes"), "{error}");
}
