//! Some of many names, for people: bounded by their number and their bytes.

/// Most names.
pub const MAX_NAMES: usize = 1_000;
/// Most bytes of them.
const MAX_BYTES: usize = 64 << 10;

/// The first names of many, as many as there is room for.
pub struct SomeNames<T> {
    taken: Vec<T>,
    bytes: usize,
}

impl<T> Default for SomeNames<T> {
    fn default() -> SomeNames<T> {
        SomeNames { taken: Vec::new(), bytes: 0 }
    }
}

impl<T> SomeNames<T> {
    /// Adds a name of so many bytes. Returns false if there is no room.
    pub fn take(&mut self, name: T, bytes: usize) -> bool {
        let has_room = self.taken.len() < MAX_NAMES && self.bytes + bytes <= MAX_BYTES;
        if has_room {
            self.bytes += bytes;
            self.taken.push(name);
        }
        has_room
    }

    /// Returns the names.
    pub fn into_taken(self) -> Vec<T> {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_the_bytes_of_names_are_bounded() {
        let mut short = SomeNames::default();
        assert_eq!((0..2_000).filter(|number| short.take(*number, 1)).count(), MAX_NAMES);
        assert!(!short.take(7, 1));
        let taken = short.into_taken();
        assert_eq!((taken.len(), taken.last().copied()), (MAX_NAMES, Some(999)));
        let mut long = SomeNames::default();
        assert_eq!((0..2_000).filter(|number| long.take(*number, 1_024)).count(), 64);
    }
}
