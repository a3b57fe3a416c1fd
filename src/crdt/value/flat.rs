//! How values are written to checkpoints and state transfers: as a list of leaves with the path of each.
//!
//! A tree of maps would make a decoder recurse as deep as the bytes say. Maps have no state of their own, so their
//! leaves are all there is to write. What is read was written by a disk or a peer: it is checked to be what [`Slots`]
//! promises to be.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::crdt::value::element::Element;
use crate::crdt::value::leaf::Leaf;
use crate::crdt::value::map::Map;
use crate::crdt::value::operation::validate_nesting;
use crate::crdt::value::state::State;
use crate::crdt::value::{MapType, Slots};

/// A leaf to write.
#[derive(Clone, Serialize)]
struct Borrowed<'a> {
    path: Vec<(MapType, &'a Element)>,
    leaf: &'a Leaf,
}

/// The same, as it is read.
#[derive(Deserialize)]
struct Owned {
    path: Vec<(MapType, Element)>,
    leaf: Leaf,
}

/// What does not make a value. Nothing was changed.
#[derive(Debug, thiserror::Error)]
enum FlatError {
    #[error("a value holds an empty leaf: {0:?}")]
    EmptyLeaf(Leaf),
    #[error("a value holds the same leaf twice: {0:?}")]
    Twice(Leaf),
    #[error(transparent)]
    Nesting(#[from] crate::crdt::value::OpError),
}

impl Slots {
    fn flatten<'a>(&'a self, path: &mut Vec<(MapType, &'a Element)>, into: &mut Vec<Borrowed<'a>>) {
        for state in &self.0 {
            match state {
                State::Leaf(leaf) => into.push(Borrowed { path: path.clone(), leaf }),
                State::Map(of, map) => {
                    for (field, slots) in map.fields() {
                        path.push((*of, field));
                        slots.flatten(path, into);
                        path.pop();
                    }
                }
            }
        }
    }

    fn insert(&mut self, owned: Owned) -> Result<(), FlatError> {
        let Owned { path, leaf } = owned;
        validate_nesting(path.iter().map(|(map, _)| *map), leaf.value_type())?;
        if leaf.value().is_empty() {
            return Err(FlatError::EmptyLeaf(leaf));
        }
        self.insert_within(&path, leaf)
    }

    /// As deep as the path, which was validated.
    fn insert_within(&mut self, path: &[(MapType, Element)], leaf: Leaf) -> Result<(), FlatError> {
        let of = path.first().map_or_else(|| leaf.value_type(), |(map, _)| map.value_type());
        let found = self.0.binary_search_by_key(&of, State::value_type);
        let Some(((map_type, field), inner)) = path.split_first() else {
            return match found {
                Ok(_) => Err(FlatError::Twice(leaf)),
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
        let mut flat = Vec::new();
        self.flatten(&mut Vec::new(), &mut flat);
        flat.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Slots, D::Error> {
        let mut slots = Slots::default();
        for owned in Vec::<Owned>::deserialize(deserializer)? {
            slots.insert(owned).map_err(D::Error::custom)?;
        }
        Ok(slots)
    }
}
