//! The state of the model: logs, three datacenters, one client in each.

use smallvec::SmallVec;

pub const DCS: usize = 3;
pub const LOCKS: usize = 2;
/// Most rules about homes, one after the other.
pub const RULES: usize = 2;
/// The lock that the rules are about.
pub const BELOW: usize = 0;

/// A datacenter, from 0.
pub type Dc = usize;
/// The wanted mode of each lock, if any.
pub type Wants = [Option<Mode>; LOCKS];
/// The home of each lock, if its name has one.
pub type Homes = [Option<Dc>; LOCKS];
/// Rules about the home of the first lock, which is below their prefix: each names one, or none again.
pub type Rules = [Option<Option<u8>>; RULES];
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
    Request {
        at: u8,
        wants: Wants,
    },
    Withdraw {
        at: u8,
    },
    Transfer {
        to: u8,
        lock: u8,
        parts: Parts,
        versions: [u8; DCS],
    },
    /// From this entry on its entries are of the epoch of this rule. In most cases it gives in the same step.
    Enter {
        rule: u8,
        gives: Option<Given>,
    },
    /// It gives later than it has entered.
    Give {
        rule: u8,
        gives: Given,
    },
}

/// These parts, which it owned by default, are kept by registers. From here on all others that it owned so
/// belong to the next owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Given {
    pub kept: Parts,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    pub stamp: u8,
    /// The vector that its datacenter had applied when it made this entry.
    pub deps: Vector,
    /// The number of rules that its datacenter had entered.
    pub epoch: u8,
    pub op: Op,
}

/// The owner of a part: the higher version wins. Version 0 is no register; its owner is the default one
/// before all rules.
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

/// The homes of the locks below a prefix, as far as members have given what they owned by default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HomeRules {
    pub rules: Rules,
    /// A mutation: the default owner is judged by what is known where an entry is applied.
    pub judged_here: bool,
    /// By rule, by datacenter: the number of the entry by which it gave, or 0.
    pub given: [Vector; RULES],
    /// By datacenter: the number of rules that it has entered.
    pub entered: Vector,
}

impl HomeRules {
    pub fn new(rules: Rules, judged_here: bool) -> HomeRules {
        HomeRules { rules, judged_here, given: [[0; DCS]; RULES], entered: [0; DCS] }
    }

    /// Returns the default owner of a part, for who has entered so many rules and applied so many entries.
    fn owner(&self, base: u8, part: Dc, entered: u8, applied: &Vector) -> u8 {
        let mut owner = base;
        for (rule, given) in self.given.iter().enumerate().take(entered.into()) {
            let seq = given[usize::from(owner)];
            if seq > 0 && applied[usize::from(owner)] >= seq {
                owner = self.rules[rule].flatten().unwrap_or(part as u8);
            }
        }
        owner
    }

    /// Returns true if all have given by a rule.
    pub fn have_given(&self, rule: u8) -> bool {
        self.given[usize::from(rule)].iter().all(|seq| *seq > 0)
    }
}

/// The state derived from entries. All other state of a datacenter is lost in a crash.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    pub registers: [[Register; DCS]; LOCKS],
    pub homes: HomeRules,
    /// In order.
    pub table: SmallVec<[Row; 4]>,
}

impl View {
    /// Before any entry: a part of a homed lock is at the home, one of another lock where its name says.
    pub fn initial(homes: Homes, rules: HomeRules) -> View {
        let owner = |lock: usize, part: Dc| homes[lock].unwrap_or(part) as u8;
        let row = |lock| std::array::from_fn(|part| Register { version: 0, owner: owner(lock, part) });
        View { registers: std::array::from_fn(row), homes: rules, table: SmallVec::new() }
    }

    pub fn owner(&self, lock: usize, part: Dc) -> Dc {
        let Register { version, owner } = self.registers[lock][part];
        if version > 0 || lock != BELOW {
            return owner.into();
        }
        self.homes.owner(owner, part, RULES as u8, &[u8::MAX; DCS]).into()
    }

    pub fn parts_of(&self, lock: usize, dc: Dc) -> Parts {
        Parts((0..DCS).filter(|part| self.owner(lock, *part) == dc).fold(0, |parts, part| parts | 1 << part))
    }

    /// Returns the parts of the lock below the prefix that a datacenter owns by default.
    pub fn owned_by_default(&self, dc: Dc) -> Parts {
        let is_default = |part: &Dc| self.registers[BELOW][*part].version == 0;
        let owned = (0..DCS).filter(is_default).filter(|part| self.owner(BELOW, *part) == dc);
        Parts(owned.fold(0, |parts, part| parts | 1 << part))
    }

    /// Returns true if the entry keeps the rule that only the owner transfers a part, and only the default
    /// owner keeps one.
    pub fn allows(&self, maker: Dc, entry: &Entry) -> bool {
        match entry.op {
            Op::Transfer { lock, parts, .. } => self.parts_of(lock.into(), maker).covers(parts),
            Op::Enter { rule, gives: Some(given) } | Op::Give { rule, gives: given } => {
                self.homes.given[usize::from(rule)][maker] == 0
                    && self.owned_by_default(maker).covers(given.kept)
            }
            Op::Request { .. } | Op::Withdraw { .. } | Op::Enter { gives: None, .. } => true,
        }
    }

    /// Applies entry `seq` of its maker's log.
    pub fn apply(&mut self, maker: Dc, seq: u8, entry: &Entry) {
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
                    self.transfer(usize::from(lock), part, to, versions[part], entry);
                }
            }
            Op::Enter { rule, gives } => {
                self.homes.entered[maker] = rule + 1;
                gives.into_iter().for_each(|given| self.give(maker, seq, rule, given));
            }
            Op::Give { rule, gives } => self.give(maker, seq, rule, gives),
        }
    }

    fn give(&mut self, maker: Dc, seq: u8, rule: u8, Given { kept }: Given) {
        let register = Register { version: 1, owner: maker as u8 };
        (0..DCS).filter(|part| kept.has(*part)).for_each(|part| self.registers[BELOW][part] = register);
        self.homes.given[usize::from(rule)][maker] = seq;
    }

    /// A part that moves to its default owner, as the maker of the entry knew it, loses its register.
    fn transfer(&mut self, lock: usize, part: Dc, to: u8, version: u8, entry: &Entry) {
        let register = &mut self.registers[lock][part];
        if version <= register.version {
            return;
        }
        *register = Register { version, owner: to };
        let base = part as u8;
        let default = match self.homes.judged_here {
            true => self.homes.owner(base, part, RULES as u8, &[u8::MAX; DCS]),
            false => self.homes.owner(base, part, entry.epoch, &entry.deps),
        };
        if lock == BELOW && self.homes.rules[0].is_some() && default == to {
            *register = Register { version: 0, owner: base };
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
