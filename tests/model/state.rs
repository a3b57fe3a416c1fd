//! What the model knows: logs, three datacenters, one client in each.

use smallvec::SmallVec;

pub const DCS: usize = 3;
pub const LOCKS: usize = 2;

/// A datacenter, from 0.
pub type Dc = usize;
/// For each lock how it is wanted, if it is.
pub type Wants = [Option<Mode>; LOCKS];
/// How much of each datacenter's log.
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

    /// What a grant in that mode needs.
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

/// An operation in a log. A request is named by its datacenter and `at`, which no datacenter gives twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    Request { at: u8, wants: Wants },
    Withdraw { at: u8 },
    Transfer { to: u8, lock: u8, parts: Parts, versions: [u8; DCS] },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    pub stamp: u8,
    /// What its datacenter had applied when it made this.
    pub deps: Vector,
    pub op: Op,
}

/// Who owns a part: the higher version wins.
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

/// What entries amount to. Everything else of a datacenter is lost in a crash.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    pub registers: [[Register; DCS]; LOCKS],
    /// In order.
    pub table: SmallVec<[Row; 4]>,
}

impl View {
    pub fn initial() -> View {
        let row = std::array::from_fn(|part| Register { version: 0, owner: part as u8 });
        View { registers: [row; LOCKS], table: SmallVec::new() }
    }

    pub fn parts_of(&self, lock: usize, dc: Dc) -> Parts {
        let mine = (0..DCS).filter(|part| usize::from(self.registers[lock][*part].owner) == dc);
        Parts(mine.fold(0, |parts, part| parts | 1 << part))
    }

    /// Whether this keeps the rule that only the owner gives a part away.
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

/// The client of a datacenter. What it *holds* is its own belief, which a crash of the server does not touch.
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
        /// The server knows of it: it did not restart since, or the client has reclaimed it.
        known: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    pub applied: Vector,
    pub durable: Vector,
    /// By whom the entries are that are applied and not durable, in the order of application.
    pub tail: SmallVec<[u8; 8]>,
    pub view: View,
    /// Given out in everything that is stamped: requests, entries, tokens.
    pub clock: u8,
    /// How much others were told that this datacenter has: its own entries that left, and its vectors.
    pub told: Vector,
    pub client: Client,
    /// How many of its orders the client is through with.
    pub done: u8,
}

/// The highest tokens of a lock that clients were told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tokens {
    pub exclusive: u8,
    pub shared: u8,
}

/// A broken promise that one can see in a step only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    TokenDidNotGrow,
    CorrectPeerAccused,
    /// A state is not what its vector says.
    StateDiffers,
    ReclaimRefused,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Which of the model's scenarios it is.
    pub scenario: u8,
    pub logs: [SmallVec<[Entry; 4]>; DCS],
    pub sites: [Site; DCS],
    pub tokens: [Tokens; LOCKS],
    /// By datacenter.
    pub crashes_left: [u8; DCS],
    /// A crash lost something at some time.
    pub lost_a_tail: bool,
    pub broken: Option<Broken>,
}

impl State {
    /// Whether anybody can have sent that entry: whoever said that it has it. Nothing that was sent is ever gone from
    /// the network, see the top of `main.rs`.
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
