//! The rights of one caller: for each action, prefixes of names.

use super::action::Action;

/// The rights of one caller. Names of locks are used as they are, those of keys as
/// [`Key::as_bytes`](geolock_api::keys::Key::as_bytes); the server itself is the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    by_action: [Prefixes; Action::ALL.len()],
}

impl Rights {
    pub(super) fn allow(&mut self, action: Action, prefix: &[u8]) {
        self.by_action[action as usize].0.push(prefix.into());
    }

    /// Sorts the prefixes. Call after the last [`Rights::allow`].
    pub(super) fn sorted(mut self) -> Rights {
        self.by_action.iter_mut().for_each(Prefixes::sort);
        self
    }

    /// Returns true if this name is allowed. A prefix is allowed under the same condition, because every name
    /// that begins with an allowed prefix is allowed.
    pub fn allows(&self, action: Action, name: &[u8]) -> bool {
        self.by_action[action as usize].cover(name)
    }

    /// Returns true if one of these actions is allowed on anything.
    pub fn allows_any(&self, actions: &[Action]) -> bool {
        actions.iter().any(|action| !self.by_action[*action as usize].0.is_empty())
    }
}

/// Sorted prefixes, none a prefix of another. So of the prefixes that are not above a name, only the last can
/// be a prefix of it. (If an earlier one were, then all between it and the name, including the last, would
/// begin with it.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Prefixes(Vec<Box<[u8]>>);

impl Prefixes {
    fn sort(&mut self) {
        self.0.sort_unstable();
        // Prefixes that begin with a kept one follow it directly.
        self.0.dedup_by(|next, kept| next.starts_with(kept));
    }

    fn cover(&self, name: &[u8]) -> bool {
        let above = self.0.partition_point(|prefix| **prefix <= *name);
        above.checked_sub(1).is_some_and(|last| name.starts_with(&self.0[last]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rights(prefixes: &[&[u8]]) -> Rights {
        let mut rights = Rights::default();
        prefixes.iter().for_each(|prefix| rights.allow(Action::Read, prefix));
        rights.sorted()
    }

    #[test]
    fn a_prefix_allows_what_begins_with_it_and_nothing_else() {
        let some = rights(&[b"b/", b"a", b"a/b", b"\xff"]);
        for inside in [&b"a"[..], b"a/", b"a/b", b"aa", b"b/", b"b/x", b"\xff", b"\xff\xff"] {
            assert!(some.allows(Action::Read, inside), "{inside:?}");
        }
        for outside in [&b""[..], b"b", b"b.", b"b0", b"A", b"c", b"\xfe"] {
            assert!(!some.allows(Action::Read, outside), "{outside:?}");
        }
        assert!(!some.allows(Action::Write, b"a"), "another action");
    }

    #[test]
    fn the_empty_prefix_allows_all_and_no_prefix_nothing() {
        assert!(
            rights(&[b"a", b""]).allows(Action::Read, b"") && rights(&[b""]).allows(Action::Read, b"\xff")
        );
        assert!(
            !Rights::default().allows(Action::Read, b"") && !Rights::default().allows(Action::Read, b"a")
        );
        assert!(rights(&[b"a"]).allows_any(&[Action::Write, Action::Read]));
        assert!(!rights(&[b"a"]).allows_any(&[Action::Write]));
    }

    proptest! {
        #[test]
        fn one_search_finds_what_a_walk_over_all_finds(
            prefixes in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..5), 0..12),
            name in proptest::collection::vec(0_u8..3, 0..7),
        ) {
            let mut rights = Rights::default();
            prefixes.iter().for_each(|prefix| rights.allow(Action::Describe, prefix));
            let walked = prefixes.iter().any(|prefix| name.starts_with(prefix));
            prop_assert_eq!(rights.sorted().allows(Action::Describe, &name), walked);
        }
    }
}
