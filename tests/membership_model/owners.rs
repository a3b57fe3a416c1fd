//! The owner of each part: a function of the registers of a lock and of one small table per member set. The
//! core can take this file over as it is.
//!
//! A part without a register belongs to nobody that a table of locks would have to name: it is at home, or
//! it *goes with* the part of the sponsor of the member that it is named after. So a new member has a part of
//! every lock at once, and no lock is enumerated. [`PartTable::owner`] is the definition
//!
//! ```text
//! owner(x) = register is (v, o):            o, or x if o is not a member (any more)
//!            register is Home:              x
//!            nothing and sponsor(x) = x:    x
//!            nothing, with o = owner(sponsor(x)):
//!                                           x if x was split off and o = sponsor(x), else o
//! ```
//!
//! without recursion. For a lock without registers it is one array access, and the parts that a member owns
//! are another one ([`PartTable::default_parts`]). Chains of sponsors have 63 links at most and one in
//! practice: a member may be a sponsor only once no part goes with another one for it any more.

use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The register of one part of one lock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Register {
    /// Never moved since the member was admitted, or back where it belongs by default.
    #[default]
    Nothing,
    /// At home. Written where `Nothing` would mean that the part goes with the sponsor's part.
    Home,
    /// Moved so often since it was at home last. Version 0: written out where it was, without a move.
    Moved { version: u32, owner: DcId },
}

/// The facts about members that the owners of parts depend on, and the defaults that follow from them.
/// Recomputed when the member set, a sponsor or a split changes, which is rare.
#[derive(Clone, Debug)]
pub struct PartTable {
    members: DcSet,
    /// The sponsor of each member; of a founder, or a member whose joining is complete, the member itself.
    sponsor: [DcId; MAX_DCS],
    /// The members whose part their sponsor split off.
    split: DcSet,
    default_owner: [DcId; MAX_DCS],
    default_parts: [DcSet; MAX_DCS],
}

fn every_dc() -> impl Iterator<Item = DcId> {
    (0..MAX_DCS as u8).filter_map(DcId::new)
}

impl PartTable {
    /// Returns the table of founders.
    pub fn new(founders: DcSet) -> PartTable {
        let mut home = [founders.iter().next().expect("somebody founds a cluster"); MAX_DCS];
        every_dc().for_each(|dc| home[dc.index()] = dc);
        let mut table = PartTable {
            members: founders,
            sponsor: home,
            split: DcSet::EMPTY,
            default_owner: home,
            default_parts: [DcSet::EMPTY; MAX_DCS],
        };
        table.compute_defaults();
        table
    }

    /// Returns the members: each has a part of every lock.
    pub fn members(&self) -> DcSet {
        self.members
    }

    pub fn sponsor(&self, part: DcId) -> DcId {
        self.sponsor[part.index()]
    }

    pub fn is_split(&self, part: DcId) -> bool {
        self.split.contains(part)
    }

    /// Adds a member, whose part of every lock goes with the sponsor's part.
    pub fn admit(&mut self, member: DcId, sponsor: DcId) {
        self.members.insert(member);
        self.sponsor[member.index()] = sponsor;
        self.split.remove(member);
        self.compute_defaults();
    }

    /// Removes members that are over. Their registers are ignored from now on, and parts that they own fall
    /// home.
    pub fn remove(&mut self, over: DcSet) {
        self.members = self.members.difference(over);
        self.compute_defaults();
    }

    /// The part is its member's own wherever the sponsor's part is at home.
    pub fn split(&mut self, part: DcId) {
        self.split.insert(part);
        self.compute_defaults();
    }

    /// The part goes with no other part any more.
    pub fn settle(&mut self, part: DcId) {
        self.sponsor[part.index()] = part;
        self.split.remove(part);
        self.compute_defaults();
    }

    /// Returns the owner of a part of a lock with these registers, which are in the order of the parts; a
    /// lock without a row has none.
    #[inline]
    pub fn owner(&self, registers: &[Register], part: DcId) -> DcId {
        if registers.is_empty() {
            return self.default_owner[part.index()];
        }
        self.find_owner(registers, part)
    }

    /// Returns the parts of a lock that a member owns.
    #[inline]
    pub fn parts_of(&self, registers: &[Register], owner: DcId) -> DcSet {
        if registers.is_empty() {
            return self.default_parts[owner.index()];
        }
        self.members.iter().filter(|part| self.find_owner(registers, *part) == owner).collect()
    }

    /// Returns the owner that a register names, or `None` if the part goes by the defaults.
    pub fn written(&self, registers: &[Register], part: DcId) -> Option<DcId> {
        match registers.get(part.index()).copied().unwrap_or_default() {
            Register::Nothing => None,
            Register::Home => Some(part),
            Register::Moved { owner, .. } if self.members.contains(owner) => Some(owner),
            Register::Moved { .. } => Some(part),
        }
    }

    fn find_owner(&self, registers: &[Register], part: DcId) -> DcId {
        let (mut chain, mut depth) = ([part; MAX_DCS], 0);
        // Up, to the first part whose owner depends on no other part.
        let mut owner = loop {
            let at = chain[depth];
            if let Some(owner) = self.written(registers, at) {
                break owner;
            }
            let sponsor = self.sponsor(at);
            if sponsor == at || !self.members.contains(sponsor) {
                break at;
            }
            depth += 1;
            chain[depth] = sponsor;
        };
        // Down again: each part goes along, or was split off from a part that is at home.
        while depth > 0 {
            depth -= 1;
            if owner == chain[depth + 1] && self.is_split(chain[depth]) {
                owner = chain[depth];
            }
        }
        owner
    }

    fn compute_defaults(&mut self) {
        self.default_parts = [DcSet::EMPTY; MAX_DCS];
        for part in self.members.iter() {
            let owner = self.find_owner(&[], part);
            self.default_owner[part.index()] = owner;
            self.default_parts[owner.index()].insert(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small number")
    }

    /// The definition of the design, word by word.
    fn by_definition(table: &PartTable, registers: &[Register], part: DcId) -> DcId {
        match registers.get(part.index()).copied().unwrap_or_default() {
            Register::Moved { owner, .. } if table.members.contains(owner) => owner,
            Register::Moved { .. } | Register::Home => part,
            Register::Nothing if table.sponsor(part) == part => part,
            Register::Nothing => {
                let owner = by_definition(table, registers, table.sponsor(part));
                if table.is_split(part) && owner == table.sponsor(part) { part } else { owner }
            }
        }
    }

    const PARTS: u8 = 8;

    fn registers() -> impl Strategy<Value = Vec<Register>> {
        let moved = |(version, owner)| Register::Moved { version, owner: dc(owner) };
        let register = prop_oneof![
            3 => Just(Register::Nothing),
            1 => Just(Register::Home),
            2 => (0..9_u32, 0..PARTS).prop_map(moved),
        ];
        proptest::collection::vec(register, 0..=usize::from(PARTS))
    }

    /// Member `n` has a sponsor below it, so chains are as long as they can be; some were split off, some
    /// are settled, some are over.
    fn tables() -> impl Strategy<Value = PartTable> {
        let joins = proptest::collection::vec((any::<u8>(), 0..3_u8), usize::from(PARTS));
        (joins, any::<u8>()).prop_map(|(joins, over)| {
            let mut table = PartTable::new(DcSet::only(dc(0)));
            for (member, (sponsor, stage)) in (1..PARTS).zip(joins) {
                table.admit(dc(member), dc(sponsor % member));
                match stage {
                    0 => {}
                    1 => table.split(dc(member)),
                    _ => table.settle(dc(member)),
                }
            }
            // A sponsor does not end before those that it sponsors.
            for member in (1..PARTS).filter(|member| over >> member & 1 == 1) {
                let sponsors =
                    (1..PARTS).any(|other| other != member && table.sponsor(dc(other)) == dc(member));
                if !sponsors {
                    table.remove(DcSet::only(dc(member)));
                }
            }
            table
        })
    }

    proptest! {
        #[test]
        fn the_owner_is_as_the_definition_says(table in tables(), registers in registers()) {
            for part in table.members().iter() {
                let owner = table.owner(&registers, part);
                prop_assert_eq!(owner, by_definition(&table, &registers, part));
                prop_assert!(table.members().contains(owner));
            }
        }

        #[test]
        fn the_defaults_are_those_of_a_row_with_nothing_in_it(table in tables()) {
            let nothing = [Register::Nothing; PARTS as usize];
            for dc in table.members().iter() {
                prop_assert_eq!(table.owner(&[], dc), table.owner(&nothing, dc));
                prop_assert_eq!(table.parts_of(&[], dc), table.parts_of(&nothing, dc));
            }
        }

        #[test]
        fn each_part_has_one_owner(table in tables(), registers in registers()) {
            let mut seen = DcSet::EMPTY;
            for owner in table.members().iter() {
                let parts = table.parts_of(&registers, owner);
                prop_assert!(seen.intersection(parts).is_empty());
                seen = seen.union(parts);
            }
            prop_assert_eq!(seen, table.members());
        }
    }

    #[test]
    fn a_part_goes_with_that_of_the_sponsor_until_it_is_split_off() {
        let mut table = PartTable::new([dc(0), dc(1)].into_iter().collect());
        table.admit(dc(2), dc(0));
        let moved = [Register::Moved { version: 1, owner: dc(1) }];
        assert_eq!((table.owner(&[], dc(2)), table.owner(&moved, dc(2))), (dc(0), dc(1)));
        table.split(dc(2));
        assert_eq!((table.owner(&[], dc(2)), table.owner(&moved, dc(2))), (dc(2), dc(1)));
        table.settle(dc(2));
        assert_eq!((table.owner(&[], dc(2)), table.owner(&moved, dc(2))), (dc(2), dc(2)));
        table.remove(DcSet::only(dc(1)));
        assert_eq!(table.owner(&moved, dc(0)), dc(0));
    }
}
