//! A member of a double barrier, and its view of the others.
//!
//! ```text
//!  enter --enough are in, or it is open--> inside --leave--> nobody is in --> out
//! ```
//!
//! A member that sees enough members opens the barrier, by a commit that has all of theirs in its snapshot.
//! So a member that sees the open barrier sees them, too, and misses none when it waits until all have left.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// A thing that the driver has heard of, in the order in which its datacenter has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// This member came, or shows that it lives.
    Came(Bytes),
    Left(Bytes),
    /// It has not shown that it lives.
    Died(Bytes),
    Opened,
}

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Open,
    Entered,
    /// All are out. Those died.
    Out(Vec<Bytes>),
    /// This member counts as dead for the others.
    Lost,
}

/// The members at one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// True: alive.
    pub members: BTreeMap<Bytes, bool>,
    pub is_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Entering,
    Opening,
    Inside,
    Leaving,
    Over,
}

/// A deliberate mistake, in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The dead count when it enters.
    DeadCounted,
    /// It goes when it has left itself.
    OthersIgnored,
}

/// A member, from the moment at which it comes.
#[derive(Debug)]
pub(crate) struct Member {
    id: Bytes,
    needed: usize,
    view: View,
    state: State,
    effects: VecDeque<Effect>,
    bug: Option<Bug>,
}

impl Member {
    pub fn new(id: Bytes, needed: usize, view: View) -> Member {
        Member { id, needed, view, state: State::Entering, effects: VecDeque::new(), bug: None }
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Member {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes news of the watch.
    pub fn handle(&mut self, news: News) {
        if news == News::Died(self.id.clone()) && self.state != State::Over {
            return self.end(Effect::Lost);
        }
        match news {
            News::Came(id) => drop(self.view.members.insert(id, true)),
            News::Died(id) => drop(self.view.members.insert(id, false)),
            News::Left(id) => drop(self.view.members.remove(&id)),
            News::Opened => self.view.is_open = true,
        }
        self.step();
    }

    /// Replaces the view, when the watch could not resume.
    pub fn look(&mut self, view: View) {
        self.view = view;
        self.step();
    }

    /// The member has left, which it will hear of.
    pub fn leave(&mut self) {
        if self.state == State::Inside {
            self.state = State::Leaving;
            self.step();
        }
    }

    /// Returns the members that died.
    fn dead(&self) -> Vec<Bytes> {
        self.view.members.iter().filter(|(_, alive)| !**alive).map(|(id, _)| id.clone()).collect()
    }

    fn step(&mut self) {
        let counts = |alive: &&bool| **alive || self.has(Bug::DeadCounted);
        let alive = self.view.members.values().filter(counts).count();
        let ignores = self.has(Bug::OthersIgnored) && !self.view.members.contains_key(&self.id);
        match self.state {
            State::Entering | State::Opening if self.view.is_open => {
                self.state = State::Inside;
                self.effects.push_back(Effect::Entered);
            }
            State::Entering if alive >= self.needed => {
                self.state = State::Opening;
                self.effects.push_back(Effect::Open);
            }
            State::Leaving if alive == 0 || ignores => self.end(Effect::Out(self.dead())),
            _ => {}
        }
    }

    fn end(&mut self, effect: Effect) {
        self.state = State::Over;
        self.effects.push_back(effect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    const MEMBERS: usize = 9;

    /// Members in three datacenters, each of which has the commits in an order of its own: those of one
    /// datacenter in theirs, and each after what it has seen.
    struct World {
        dice: Dice,
        /// By datacenter: its commits, each with what it has seen of all.
        logs: [Vec<(News, [usize; 3])>; 3],
        seen: [[usize; 3]; 3],
        members: Vec<Option<Member>>,
        heard: Vec<usize>,
        history: [Vec<News>; 3],
        inside: Vec<bool>,
        left: Vec<bool>,
        dead: Vec<bool>,
        outs: usize,
    }

    fn id(number: usize) -> Bytes {
        Bytes::from(vec![u8::try_from(number).expect("few members")])
    }

    impl World {
        fn commit(&mut self, dc: usize, news: News) {
            let seen = self.seen[dc];
            self.logs[dc].push((news.clone(), seen));
            self.seen[dc][dc] += 1;
            self.history[dc].push(news);
        }

        /// Applies a commit of one datacenter in another, if it has all that this one has seen.
        fn spread(&mut self, from: usize, to: usize) {
            let Some((news, seen)) = self.logs[from].get(self.seen[to][from]).cloned() else { return };
            if from != to && (0..3).all(|dc| seen[dc] <= self.seen[to][dc]) {
                self.seen[to][from] += 1;
                self.history[to].push(news);
            }
        }

        fn hear(&mut self, number: usize) -> Result<(), String> {
            let Some(news) = self.history[number % 3].get(self.heard[number]).cloned() else { return Ok(()) };
            let Some(member) = &mut self.members[number] else { return Ok(()) };
            self.heard[number] += 1;
            member.handle(news);
            self.effects(number)
        }

        fn effects(&mut self, number: usize) -> Result<(), String> {
            while let Some(effect) = self.members[number].as_mut().and_then(Member::poll_effect) {
                match effect {
                    Effect::Open => self.commit(number % 3, News::Opened),
                    Effect::Entered => {
                        if self.heard.iter().filter(|heard| **heard < usize::MAX).count() < MEMBERS {
                            return Err(format!("{number} enters before {MEMBERS} are in"));
                        }
                        self.inside[number] = true;
                    }
                    Effect::Out(_) => {
                        let is_in = |other: &usize| !self.left[*other] && !self.dead[*other];
                        if let Some(other) = (0..MEMBERS).find(is_in) {
                            return Err(format!("{number} is out before {other}"));
                        }
                        self.outs += 1;
                    }
                    Effect::Lost => return Err(format!("{number} is lost")),
                }
            }
            Ok(())
        }
    }

    fn run(seed: u64, bug: Option<Bug>) -> Result<usize, String> {
        let mut world = World {
            dice: Dice::new(seed),
            logs: Default::default(),
            seen: [[0; 3]; 3],
            members: (0..MEMBERS).map(|_| None).collect(),
            // Not in yet.
            heard: vec![usize::MAX; MEMBERS],
            history: Default::default(),
            inside: vec![false; MEMBERS],
            left: vec![false; MEMBERS],
            dead: vec![false; MEMBERS],
            outs: 0,
        };
        // One that is to come dies before, and never comes.
        world.commit(0, News::Came(id(MEMBERS)));
        world.commit(0, News::Died(id(MEMBERS)));
        let victim = world.dice.place(2 * MEMBERS);
        for _ in 0..20_000 {
            let number = world.dice.place(MEMBERS);
            match world.dice.place(12) {
                0 if world.members[number].is_none() && !world.dead[number] => {
                    let member = Member::new(id(number), MEMBERS, View::default()).with_bug(bug);
                    world.members[number] = Some(member);
                    world.heard[number] = 0;
                    world.commit(number % 3, News::Came(id(number)));
                }
                1 if world.inside[number] && !world.left[number] && !world.dead[number] => {
                    if number == victim {
                        // It dies inside, and another datacenter notices that.
                        (world.dead[number], world.members[number]) = (true, None);
                        let dc = world.dice.place(3);
                        world.commit(dc, News::Died(id(number)));
                        continue;
                    }
                    world.left[number] = true;
                    world.commit(number % 3, News::Left(id(number)));
                    world.members[number].as_mut().expect("it is inside").leave();
                    world.effects(number)?;
                }
                2..=5 => {
                    let (from, to) = (world.dice.place(3), world.dice.place(3));
                    world.spread(from, to);
                }
                _ => world.hear(number)?,
            }
        }
        Ok(world.outs)
    }

    #[test]
    fn nobody_is_in_before_all_are_and_nobody_out_before_all_are() {
        let mut outs = 0;
        for seed in 0..300 {
            outs += run(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
        assert!(outs > 300 * (MEMBERS - 2), "{outs} are out in the end");
    }

    #[test]
    fn the_checks_notice_mistakes() {
        let caught = |bug| (0..100).find_map(|seed| run(seed, Some(bug)).err()).expect("it is noticed");
        assert!(caught(Bug::DeadCounted).contains("enters before"));
        assert!(caught(Bug::OthersIgnored).contains("is out before"));
    }
}
