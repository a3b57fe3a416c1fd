//! The encoding of values in checkpoints and state transfers: a list of leaves with the path of each.
//!
//! A tree of maps would make a decoder recurse as deep as the bytes say. Maps have no state of their own, so
//! only their leaves are written. A path is written as the difference from the one before, so that long names
//! are not repeated for every leaf below them. Decoded bytes come from a disk or a peer, so they are checked
//! to have the properties of [`Slots`].

use geolock_api::value::validate_nesting;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::crdt::value::Slots;
use crate::crdt::value::element::Element;
use crate::crdt::value::leaf::Leaf;
use crate::crdt::value::map::Map;
use crate::crdt::value::state::State;
use geolock_api::value::{MapType, OpError, Type};

type Step<'a> = (MapType, &'a Element);

/// A leaf to write.
#[derive(Serialize)]
struct Borrowed<'a> {
    /// Number of steps that its path shares with that of the previous leaf.
    keep: u8,
    /// The other steps.
    steps: Vec<Step<'a>>,
    leaf: &'a Leaf,
}

/// The same, as it is read.
#[derive(Deserialize)]
struct Owned {
    keep: u8,
    steps: Vec<(MapType, Element)>,
    leaf: Leaf,
}

/// A reason for which bytes are not a value.
#[derive(Debug, thiserror::Error)]
enum FlatError {
    #[error("a value holds an empty {0}")]
    Empty(Type),
    #[error("a value holds two {0}s in one place")]
    Twice(Type),
    #[error("a path keeps {keep} steps of one of {before}")]
    Keep { keep: u8, before: usize },
    #[error(transparent)]
    Nesting(#[from] OpError),
}

/// Visits the leaves of a value in order.
#[derive(Default)]
struct Flattener<'a> {
    path: Vec<Step<'a>>,
    /// Length of the part of `path` that is shared with the last leaf.
    keep: usize,
    leaves: Vec<Borrowed<'a>>,
}

impl<'a> Flattener<'a> {
    /// Recurses as deep as maps nest.
    fn visit(&mut self, slots: &'a Slots) {
        for state in &slots.0 {
            match state {
                State::Leaf(leaf) => {
                    let keep = u8::try_from(self.keep).expect("a path has at most MAX_DEPTH steps");
                    self.leaves.push(Borrowed { keep, steps: self.path[self.keep..].to_vec(), leaf });
                    self.keep = self.path.len();
                }
                State::Map(of, map) => {
                    for (field, inner) in map.fields() {
                        self.path.push((*of, field));
                        self.visit(inner);
                        self.path.pop();
                        self.keep = self.keep.min(self.path.len());
                    }
                }
            }
        }
    }
}

impl Slots {
    fn insert(&mut self, path: &[(MapType, Element)], leaf: Leaf) -> Result<(), FlatError> {
        validate_nesting(path.iter().map(|(map, _)| *map), leaf.value_type())?;
        if leaf.value().is_empty() {
            return Err(FlatError::Empty(leaf.value_type()));
        }
        self.insert_within(path, leaf)
    }

    /// Recurses as deep as the path, which was validated.
    fn insert_within(&mut self, path: &[(MapType, Element)], leaf: Leaf) -> Result<(), FlatError> {
        let of = path.first().map_or_else(|| leaf.value_type(), |(map, _)| map.value_type());
        let found = self.0.binary_search_by_key(&of, State::value_type);
        let Some(((map_type, field), inner)) = path.split_first() else {
            return match found {
                Ok(_) => Err(FlatError::Twice(of)),
                Err(slot) => {
                    self.0.insert(slot, State::Leaf(leaf));
                    Ok(())
                }
            };
        };
        let slot = found.unwrap_or_else(|slot| {
            self.0.insert(slot, State::Map(*map_type, Map::default()));
            slot
        });
        match &mut self.0[slot] {
            State::Map(_, map) => map.change(field.as_bytes(), |slots| slots.insert_within(inner, leaf)),
            State::Leaf(other) => unreachable!("{other:?} has a map's type"),
        }
    }
}

impl Serialize for Slots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut flattener = Flattener::default();
        flattener.visit(self);
        flattener.leaves.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Slots, D::Error> {
        let mut slots = Slots::default();
        let mut path = Vec::new();
        for Owned { keep, steps, leaf } in Vec::<Owned>::deserialize(deserializer)? {
            if usize::from(keep) > path.len() {
                return Err(D::Error::custom(FlatError::Keep { keep, before: path.len() }));
            }
            path.truncate(keep.into());
            path.extend(steps);
            slots.insert(&path, leaf).map_err(D::Error::custom)?;
        }
        Ok(slots)
    }
}
