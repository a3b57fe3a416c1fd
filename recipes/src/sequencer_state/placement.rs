//! The order in which the members of a contract are to coordinate it: a pure function of the contract, its
//! committee and the height of the ledger. Nodes with one height in one range agree without a message.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::words::{Contract, Node};
use crate::hash::Hasher;

/// Positions of a node on the ring. More make the shares more even, and a rank dearer.
const POSITIONS: u64 = 64;

/// The members of a contract, fixed for its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committee(Vec<Node>);

/// A committee that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitteeError {
    /// Nobody could coordinate.
    #[error("a committee has at least one node")]
    Empty,
    /// Two nodes of one name would be one sender with two databases.
    #[error("the committee names {0} twice")]
    Twice(Node),
    /// The node that takes part is not a member.
    #[error("the committee does not name this node, {0}")]
    Without(Node),
    /// [`Placement::RingAt`] lacks a member: it would never coordinate.
    #[error("the ring has no position for {0}: give each member at least one")]
    NoPosition(Node),
    /// [`Placement::RingAt`] has positions for a node that is no member.
    #[error("the ring has positions for {0}, which is no member of the committee")]
    NoMember(Node),
}

impl Committee {
    /// Checks the members; their order does not matter. `me`: the node that takes part.
    pub fn new(members: impl IntoIterator<Item = Node>, me: &Node) -> Result<Committee, CommitteeError> {
        let mut members: Vec<Node> = members.into_iter().collect();
        members.sort();
        if members.is_empty() {
            return Err(CommitteeError::Empty);
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CommitteeError::Twice(pair[0].clone()));
        }
        match members.contains(me) {
            true => Ok(Committee(members)),
            false => Err(CommitteeError::Without(me.clone())),
        }
    }

    /// Returns the members by name.
    pub fn members(&self) -> &[Node] {
        &self.0
    }
}

/// The rule by which a committee is ranked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By a hash of contract, range and node, highest first (Thaler and Ravishankar 1998). Even over ranges
    /// and over contracts; a node that leaves moves only its own ranges.
    #[default]
    Rendezvous,
    /// By the distance on a ring from a point that each range draws, nearest first. Each node has 64
    /// positions, drawn from its name.
    Ring,
    /// The same with positions that were chosen, at least one for each node; the whole ring is 2^64. A node
    /// with more of it around its positions coordinates more ranges.
    RingAt(Arc<BTreeMap<Node, Vec<u64>>>),
}

impl Placement {
    /// Checks that a rank can have all of a committee.
    pub(crate) fn check(&self, committee: &Committee) -> Result<(), CommitteeError> {
        let Placement::RingAt(positions) = self else { return Ok(()) };
        let has_none = |node: &&Node| positions.get(*node).is_none_or(Vec::is_empty);
        if let Some(node) = committee.members().iter().find(has_none) {
            return Err(CommitteeError::NoPosition(node.clone()));
        }
        match positions.keys().find(|node| !committee.members().contains(node)) {
            Some(node) => Err(CommitteeError::NoMember(node.clone())),
            None => Ok(()),
        }
    }

    /// Returns the committee in the order in which it is to coordinate the contract in a range.
    pub fn rank(&self, contract: &Contract, committee: &Committee, range: u64) -> Vec<Node> {
        match self {
            Placement::Rendezvous => rendezvous(contract, committee, range),
            Placement::Ring => {
                let positions = committee.members().iter().flat_map(|node| {
                    let at = |number| Hasher::new("position").field(node.as_bytes()).number(number).even();
                    (0..POSITIONS).map(move |number| (node, at(number)))
                });
                nearest(point(contract, range), positions)
            }
            Placement::RingAt(positions) => {
                let positions = positions
                    .iter()
                    .flat_map(|(node, all)| all.iter().map(move |position| (node, *position)));
                nearest(point(contract, range), positions)
            }
        }
    }
}

/// Returns the point on the ring that a range draws.
fn point(contract: &Contract, range: u64) -> u64 {
    Hasher::new("point").field(contract.as_bytes()).number(range).even()
}

fn rendezvous(contract: &Contract, committee: &Committee, range: u64) -> Vec<Node> {
    let of_range = Hasher::new("rendezvous").field(contract.as_bytes()).number(range);
    let mut drawn: Vec<_> =
        committee.members().iter().map(|node| (of_range.field(node.as_bytes()).even(), node)).collect();
    drawn.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    drawn.into_iter().map(|(_, node)| node.clone()).collect()
}

/// Returns each node once, by its position nearest to the point, the shorter way round; of two at the same
/// distance the one that is clockwise of the point is first. The whole ring is 2^64.
fn nearest<'a>(point: u64, positions: impl IntoIterator<Item = (&'a Node, u64)>) -> Vec<Node> {
    let mut by_distance: Vec<_> = positions
        .into_iter()
        .map(|(node, at)| {
            let (clockwise, back) = (at.wrapping_sub(point), point.wrapping_sub(at));
            (clockwise.min(back), clockwise > back, node)
        })
        .collect();
    by_distance.sort();
    let mut rank: Vec<Node> = Vec::new();
    for (_, _, node) in by_distance {
        if !rank.contains(node) {
            rank.push(node.clone());
        }
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::super::options::SequencerOptions;
    use super::*;

    fn committee(names: &[&str]) -> Committee {
        let nodes: Vec<Node> = names.iter().map(|name| Node::new(name)).collect();
        Committee::new(nodes.clone(), &nodes[0]).expect("the test names members once")
    }

    #[test]
    fn a_committee_that_cannot_be_is_refused() {
        let of = |names: &[&str]| Committee::new(names.iter().map(|name| Node::new(name)), &Node::new("a"));
        assert_eq!(of(&[]), Err(CommitteeError::Empty));
        assert_eq!(of(&["a", "b", "a"]), Err(CommitteeError::Twice(Node::new("a"))));
        assert_eq!(of(&["b"]), Err(CommitteeError::Without(Node::new("a"))));
        assert_eq!(of(&["b", "a"]), of(&["a", "b"]));
    }

    /// The example of the original proposal.
    #[test]
    fn the_nearest_on_the_ring_is_first_and_then_the_next_nearest() {
        let degrees = |degrees: u128| ((degrees << 64) / 360) as u64;
        let nodes = ["A", "B", "C", "D"].map(Node::new);
        let positions = [315, 45, 225, 135].map(degrees);
        let rank = |point| {
            let rank = nearest(degrees(point), nodes.iter().zip(positions));
            rank.iter().map(Node::as_str).collect::<String>()
        };
        assert_eq!(rank(310), "ACBD");
        assert_eq!(rank(55), "BDAC");
        assert_eq!(rank(120), "DBCA");
        // Ranges of 4 blocks, with these points.
        let options = SequencerOptions { block_range: 4, ..SequencerOptions::default() };
        let first = |height| rank([310, 55, 120][options.range(height) as usize]).remove(0);
        assert_eq!((0..12).map(first).collect::<String>(), "AAAABBBBDDDD");
        // Halfway between A and B: clockwise first.
        assert_eq!(rank(0), "BADC");
    }

    #[test]
    fn positions_on_the_ring_are_of_members_and_decide_their_shares() {
        let members = committee(&["a", "b"]);
        let of = |given: &[(&str, &[u64])]| {
            let positions = given.iter().map(|(node, all)| (Node::new(node), all.to_vec())).collect();
            Placement::RingAt(Arc::new(positions))
        };
        let check = |given: &[(&str, &[u64])]| of(given).check(&members);
        assert_eq!(check(&[("a", &[1])]), Err(CommitteeError::NoPosition(Node::new("b"))));
        assert_eq!(check(&[("a", &[1]), ("b", &[])]), Err(CommitteeError::NoPosition(Node::new("b"))));
        let stranger = check(&[("a", &[1]), ("b", &[2]), ("c", &[3])]);
        assert_eq!(stranger, Err(CommitteeError::NoMember(Node::new("c"))));
        // Three quarters of the ring are nearer to `a`.
        let quarter = 1 << 62;
        let ring = of(&[("a", &[0, quarter, 2 * quarter]), ("b", &[3 * quarter])]);
        assert_eq!(ring.check(&members), Ok(()));
        let first = |range| ring.rank(&Contract::new("c"), &members, range).remove(0);
        let share = (0..1_000).filter(|range| first(*range) == Node::new("a")).count();
        assert!(share.abs_diff(750) <= 55, "{share}");
    }

    #[test]
    fn all_agree_and_a_range_has_one_order() {
        for placement in [Placement::Rendezvous, Placement::Ring] {
            let (contract, all) = (Contract::new("c"), committee(&["a", "b", "c", "d", "e"]));
            for range in 0..200 {
                let rank = placement.rank(&contract, &all, range);
                assert_eq!(rank, placement.rank(&contract, &committee(&["e", "c", "d", "a", "b"]), range));
                assert_eq!(rank.len(), 5);
            }
        }
    }

    #[test]
    fn shares_are_even_over_ranges() {
        const RANGES: u64 = 10_000;
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        for size in 2..=names.len() {
            let members = committee(&names[..size]);
            let mut shares = vec![0_u64; size];
            for range in 0..RANGES {
                let rank = Placement::Rendezvous.rank(&Contract::new("c"), &members, range);
                let first = members.members().iter().position(|node| *node == rank[0]);
                shares[first.expect("a rank has members")] += 1;
            }
            let even = RANGES as f64 / size as f64;
            let deviation = (even * (1.0 - 1.0 / size as f64)).sqrt();
            assert!(shares.iter().all(|share| (*share as f64 - even).abs() < 4.0 * deviation), "{shares:?}");
        }
    }

    #[test]
    fn contracts_are_spread_over_nodes() {
        for placement in [Placement::Rendezvous, Placement::Ring] {
            let members = committee(&["a", "b", "c", "d"]);
            let mut shares = [0_u64; 4];
            for number in 0..1_000 {
                let rank = placement.rank(&Contract::new(&format!("contract-{number}")), &members, 7);
                let first = members.members().iter().position(|node| *node == rank[0]);
                shares[first.expect("a rank has members")] += 1;
            }
            assert!(shares.iter().all(|share| share.abs_diff(250) <= 50), "{placement:?}: {shares:?}");
        }
    }

    #[test]
    fn a_node_that_leaves_moves_only_its_own_ranges() {
        let (before, after) = (committee(&["a", "b", "c", "d"]), committee(&["a", "b", "d"]));
        for placement in [Placement::Rendezvous, Placement::Ring] {
            for range in 0..500 {
                let mut rank = placement.rank(&Contract::new("c"), &before, range);
                rank.retain(|node| *node != Node::new("c"));
                assert_eq!(rank, placement.rank(&Contract::new("c"), &after, range));
            }
        }
    }
}
