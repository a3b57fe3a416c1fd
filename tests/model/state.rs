//! The state of the model: logs, three datacenters, one client in each.

use smallvec::SmallVec;

pub const DCS: usize = 3;
pub const LOCKS: usize = 2;

/// A datacenter, from 0.
pub type Dc = usize;
/// The wanted mode of each lock, if any.
pub type Wants = [Option<Mode>; LOCKS];
/// The home of each lock, if its name has one.
pub type Homes = [Option<Dc>; LOCKS];
/// The number of entries of each datacenter's log.
pub type Vector = [u8; DCS];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    pub fn conflicts_with(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// A set of parts of one lock, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Parts(pub u8);

impl Parts {
    pub const NONE: Parts = Parts(0);

    /// Returns the parts that a grant in that mode needs.
    pub fn needed(dc: Dc, mode: Mode) -> Parts {
        match mode {
            Mode::Shared => Parts(1 << dc),
            Mode::Exclusive => Parts((1 << DCS) - 1),
        }
    }

    pub fn has(self, part: Dc) -> bool {
        self.0 & 1 << part != 0
    }

    pub fn and(self, other: Parts) -> Parts {
        Parts(self.0 & other.0)
    }

    pub fn covers(self, other: Parts) -> bool {
        other.0 & !self.0 == 0
    }
}

/// An operation in a log. A request is identified by its datacenter and `at`, which no datacenter uses twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    Request { at: u8, wants: Wants },
    Withdraw { at: u8 },
    Transfer { to: u8, lock: u8, parts: Parts, versions: [u8; DCS] },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    pub stamp: u8,
    /// The vector that its datacenter had applied when it made this entry.
    pub deps: Vector,
    pub op: Op,
}

/// The owner of a part: the higher version wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Register {
    pub version: u8,
    pub owner: u8,
}

/// A request that is in a log and not withdrawn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row {
    pub at: u8,
    pub dc: u8,
    pub wants: Wants,
}

/// The state derived from entries. All other state of a datacenter is lost in a crash.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    pub registers: [[Register; DCS]; LOCKS],
    /// In order.
    pub table: SmallVec<[Row; 4]>,
}

impl View {
    /// Before any entry: a part of a homed lock is at the home, one of another lock where its name says.
    pub fn initial(homes: Homes) -> View {
        let owner = |lock: usize, part: Dc| homes[lock].unwrap_or(part) as u8;
        let row = |lock| std::array::from_fn(|part| Register { version: 0, owner: owner(lock, part) });
        View { registers: std::array::from_fn(row), table: SmallVec::new() }
    }

    pub fn parts_of(&self, lock: usize, dc: Dc) -> Parts {
        let mine = (0..DCS).filter(|part| usize::from(self.registers[lock][*part].owner) == dc);
        Parts(mine.fold(0, |parts, part| parts | 1 << part))
    }

    /// Returns true if the entry keeps the rule that only the owner transfers a part.
    pub fn allows(&self, maker: Dc, entry: &Entry) -> bool {
        match entry.op {
            Op::Transfer { lock, parts, .. } => self.parts_of(lock.into(), maker).covers(parts),
            Op::Request { .. } | Op::Withdraw { .. } => true,
        }
    }

    pub fn apply(&mut self, maker: Dc, entry: &Entry) {
        match entry.op {
            Op::Request { at, wants } => {
                let row = Row { at, dc: maker as u8, wants };
                let place = self.table.iter().position(|r| (r.at, r.dc) > (row.at, row.dc));
                self.table.insert(place.unwrap_or(self.table.len()), row);
            }
            Op::Withdraw { at } => {
                self.table.retain(|row| (usize::from(row.dc), row.at) != (maker, at));
            }
            Op::Transfer { to, lock, parts, versions } => {
                for part in (0..DCS).filter(|part| parts.has(*part)) {
                    let register = &mut self.registers[usize::from(lock)][part];
                    if versions[part] > register.version {
                        *register = Register { version: versions[part], owner: to };
                    }
                }
            }
        }
    }
}

/// The client of a datacenter. Its belief to *hold* locks is not affected by a crash of the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Client {
    Idle,
    Waiting {
        at: u8,
        published: bool,
    },
    /// The server has granted it; the answer waits for the disk.
    Granted {
        token: u8,
    },
    Holds {
        token: u8,
        /// The server knows of it: it has not restarted since, or the client has reclaimed.
        known: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    pub applied: Vector,
    pub durable: Vector,
    /// The makers of the entries that are applied and not durable, in the order of application.
    pub tail: SmallVec<[u8; 8]>,
    pub view: View,
    /// Used for every stamp: of requests, entries, tokens.
    pub clock: u8,
    /// The vector that was announced to others: own entries that were sent, and sent vectors.
    pub told: Vector,
    pub client: Client,
    /// How many of its requests the client has completed.
    pub done: u8,
}

/// The highest tokens of a lock that clients got.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tokens {
    pub exclusive: u8,
    pub shared: u8,
}

/// A violation that is visible only in a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    TokenDidNotGrow,
    CorrectPeerAccused,
    /// A state differs from that of its vector.
    StateDiffers,
    ReclaimRefused,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The index of the model's scenario.
    pub scenario: u8,
    pub homes: Homes,
    pub logs: [SmallVec<[Entry; 4]>; DCS],
    pub sites: [Site; DCS],
    pub tokens: [Tokens; LOCKS],
    /// By datacenter.
    pub crashes_left: [u8; DCS],
    /// A crash has lost records at some time.
    pub lost_a_tail: bool,
    pub broken: Option<Broken>,
}

impl State {
    /// Returns true if any datacenter can have sent that entry: one that has announced it. Sent messages
    /// never leave the network, see the head of `main.rs`.
    pub fn is_sent(&self, maker: Dc, seq: u8) -> bool {
        self.sites.iter().any(|site| site.told[maker] >= seq)
    }

    pub fn entry(&self, maker: Dc, seq: u8) -> &Entry {
        &self.logs[maker][usize::from(seq) - 1]
    }
}

pub fn covers(all: &Vector, some: &Vector) -> bool {
    all.iter().zip(some).all(|(a, s)| a >= s)
}
