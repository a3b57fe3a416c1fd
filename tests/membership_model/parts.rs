//! The registers of all parts at one site, and how entries change them.

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::owners::{PartTable, Register};
use crate::slots::{LOCKS, SLOTS};

/// A move of one part of one lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub lock: usize,
    pub part: DcId,
    pub to: DcId,
    pub version: u32,
}

/// A rule that an entry breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    NotTheOwner { part_move: Move, owner: DcId },
    WrongVersion { part_move: Move, current: u32 },
    ExceptsWhatIsAway { lock: usize, part: DcId, owner: DcId },
    SettlingMoves { lock: usize, part: DcId, from: DcId },
}

/// The registers, and the table that gives them their meaning.
#[derive(Clone, Debug)]
pub struct Parts {
    pub table: PartTable,
    rows: [[Register; SLOTS]; LOCKS],
}

impl Parts {
    pub fn new(founders: DcSet) -> Parts {
        Parts { table: PartTable::new(founders), rows: [[Register::Nothing; SLOTS]; LOCKS] }
    }

    pub fn register(&self, lock: usize, part: DcId) -> Register {
        self.rows[lock][part.index()]
    }

    pub fn owner(&self, lock: usize, part: DcId) -> DcId {
        self.table.owner(&self.rows[lock], part)
    }

    pub fn parts_of(&self, lock: usize, owner: DcId) -> DcSet {
        self.table.parts_of(&self.rows[lock], owner)
    }

    /// Returns the number of moves since the part was at home. A part that fell home has none.
    pub fn version(&self, lock: usize, part: DcId) -> u32 {
        match self.register(lock, part) {
            Register::Moved { version, owner } if self.table.members().contains(owner) => version,
            _ => 0,
        }
    }

    /// Returns true if a part is where it is only because another part is there.
    pub fn goes_along(&self, lock: usize, part: DcId) -> bool {
        self.register(lock, part) == Register::Nothing && self.owner(lock, part) != part
    }

    /// Applies the transfers of one entry, all at once: owners are judged before any of them.
    ///
    /// `gone`: members of the entry's epoch that are over here. Their parts are ignored, and parts on their
    /// way to them go home.
    pub fn transfer(
        &mut self,
        maker: DcId,
        moves: &[Move],
        gone: DcSet,
        bug: Option<Bug>,
    ) -> Result<(), Fault> {
        let moves = moves.iter().filter(|part_move| !gone.contains(part_move.part));
        if bug == Some(Bug::TransfersInSequence) {
            return moves.copied().try_for_each(|one| {
                self.judge(maker, &one)?;
                self.write_moves(&[one], gone, bug);
                Ok(())
            });
        }
        let moves: Vec<Move> = moves.copied().collect();
        moves.iter().try_for_each(|one| self.judge(maker, one))?;
        self.write_moves(&moves, gone, bug);
        Ok(())
    }

    fn judge(&self, maker: DcId, part_move: &Move) -> Result<(), Fault> {
        let owner = self.owner(part_move.lock, part_move.part);
        if owner != maker {
            return Err(Fault::NotTheOwner { part_move: *part_move, owner });
        }
        let current = self.version(part_move.lock, part_move.part);
        if part_move.version != current + 1 {
            return Err(Fault::WrongVersion { part_move: *part_move, current });
        }
        Ok(())
    }

    fn write_moves(&mut self, moves: &[Move], gone: DcSet, bug: Option<Bug>) {
        let leaves_home = |part_move: &&Move| {
            let at_home = self.owner(part_move.lock, part_move.part) == part_move.part;
            let stays = part_move.to == part_move.part || gone.contains(part_move.to);
            at_home && !stays
        };
        let leaving: Vec<Move> = moves.iter().filter(leaves_home).copied().collect();
        for part_move in moves {
            let Move { lock, part, to, version } = *part_move;
            if to == part || gone.contains(to) && bug != Some(Bug::LateTransfersStand) {
                self.write_home(lock, part);
            } else {
                self.rows[lock][part.index()] = Register::Moved { version, owner: to };
            }
        }
        for Move { lock, part: sponsor, .. } in leaving {
            self.keep_split_parts_home(lock, sponsor, bug);
        }
    }

    /// The sponsor's part leaves home: parts that were split off from it stay.
    fn keep_split_parts_home(&mut self, lock: usize, sponsor: DcId, bug: Option<Bug>) {
        if bug == Some(Bug::NoHomeWhenSponsorLeaves) {
            return;
        }
        for part in self.table.members().iter() {
            let was_split = self.table.is_split(part) && self.table.sponsor(part) == sponsor;
            if was_split && part != sponsor && self.register(lock, part) == Register::Nothing {
                self.rows[lock][part.index()] = Register::Home;
            }
        }
    }

    /// A part comes home. It needs no register if it would be at home without.
    fn write_home(&mut self, lock: usize, part: DcId) {
        let sponsor = self.table.sponsor(part);
        let needless = sponsor == part || self.table.is_split(part) && self.owner(lock, sponsor) == sponsor;
        self.rows[lock][part.index()] = if needless { Register::Nothing } else { Register::Home };
    }

    /// A new member: its part of every lock goes with the sponsor's.
    pub fn admit(&mut self, member: DcId, sponsor: DcId, bug: Option<Bug>) {
        if bug != Some(Bug::OldRegistersStay) {
            self.scan(member);
        }
        self.table.admit(member, sponsor);
    }

    /// Rewrites the registers of a member that is over: its parts have none, and parts that it owned are at
    /// home. Changes no owner. In the product this goes on bit by bit; at the latest when the slot is
    /// entered again.
    pub fn scan(&mut self, over: DcId) {
        for lock in 0..LOCKS {
            self.rows[lock][over.index()] = Register::Nothing;
            for part in self.table.members().iter().filter(|part| *part != over) {
                if matches!(self.register(lock, part), Register::Moved { owner, .. } if owner == over) {
                    self.write_home(lock, part);
                }
            }
        }
    }

    /// From here on the part is the member's own where the sponsor's part is at home, but for the locks
    /// named: there it is at the sponsor, who holds them.
    pub fn split(
        &mut self,
        sponsor: DcId,
        part: DcId,
        except: &[usize],
        bug: Option<Bug>,
    ) -> Result<(), Fault> {
        for lock in except.iter().copied() {
            let (owner, register) = (self.owner(lock, part), self.register(lock, part));
            if bug == Some(Bug::ExceptWhatIsAway) {
                if owner != sponsor || register != Register::Nothing {
                    continue;
                }
            } else if owner != sponsor || register != Register::Nothing {
                return Err(Fault::ExceptsWhatIsAway { lock, part, owner });
            }
            self.rows[lock][part.index()] = Register::Moved { version: 0, owner: sponsor };
        }
        self.table.split(part);
        Ok(())
    }

    /// The part goes with no other part any more. This must change no owner.
    pub fn settle(&mut self, part: DcId, bug: Option<Bug>) -> Result<(), Fault> {
        let before: Vec<DcId> = (0..LOCKS).map(|lock| self.owner(lock, part)).collect();
        self.table.settle(part);
        for (lock, from) in before.into_iter().enumerate() {
            if self.owner(lock, part) != from && bug != Some(Bug::EndWithoutDone) {
                return Err(Fault::SettlingMoves { lock, part, from });
            }
            if self.register(lock, part) == Register::Home {
                self.rows[lock][part.index()] = Register::Nothing;
            }
        }
        Ok(())
    }

    /// A mover that did not know of these parts left them where they were: [`Bug::StaysBehind`].
    pub fn leave_behind(&mut self, moves: &[Move], known: DcSet) {
        for part in self.table.members().difference(known).iter() {
            for lock in moves.iter().filter(|it| it.part == self.table.sponsor(part)).map(|it| it.lock) {
                if self.register(lock, part) == Register::Nothing {
                    let owner = self.owner(lock, part);
                    self.rows[lock][part.index()] = Register::Moved { version: 0, owner };
                }
            }
        }
    }
}
