//! The best fit: the tokens of a pool that a selection asks for first.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::selector_state::token::TokenId;

/// A token that is a little too large may be at most so many times the amount.
const LITTLE: u64 = 4;

/// The place of a token among others: by its amount, then in an order of the replica's own, so that replicas
/// that choose among equal tokens do not collide.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub amount: u64,
    pub order: u64,
    pub id: TokenId,
}

/// Returns the place of a token among equals, by a hash of the seed and the id (FNV-1a, then mixed).
pub(crate) fn order_of(seed: u64, id: &TokenId) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = id.as_bytes().iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, step);
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Tokens in the order of their ranks.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranks {
    all: BTreeSet<Rank>,
}

impl Ranks {
    pub fn set(&mut self, rank: &Rank, is_in: bool) {
        match is_in {
            true if !self.all.contains(rank) => drop(self.all.insert(rank.clone())),
            true => {}
            false => drop(self.all.remove(rank)),
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Rank> {
        self.all.iter()
    }

    fn from(&self, amount: u64) -> impl DoubleEndedIterator<Item = &Rank> {
        self.all.range(least(amount)..)
    }

    fn below(&self, amount: u64) -> impl DoubleEndedIterator<Item = &Rank> {
        self.all.range(..least(amount))
    }
}

/// No rank of that amount is before this one: an id has at least one byte.
fn least(amount: u64) -> Rank {
    let id = TokenId::new(&[0_u8][..]).expect("one byte is an id");
    Rank { amount, order: 0, id }
}

/// The free tokens of a pool.
pub(crate) struct Free<'a> {
    /// Their locks can be had without asking another datacenter.
    pub here: &'a Ranks,
    pub elsewhere: &'a Ranks,
}

impl Free<'_> {
    /// Returns the best tokens for an amount, at most `most`; `None` if the free ones do not reach it.
    ///
    /// An exact one; else the smallest that is a little too large; else the largest ones below the amount;
    /// else the smallest above. A large token is broken only if nothing else serves, wherever the others
    /// are; apart from that, what is here comes first.
    pub fn fit(&self, amount: u64, most: usize) -> Option<Vec<Rank>> {
        let here = &[self.here][..];
        let all = &[self.here, self.elsewhere][..];
        let modest = self.little(here, amount).or_else(|| self.small_ones(here, amount, most));
        let modest = modest.or_else(|| self.little(all, amount));
        let modest = modest.or_else(|| self.small_ones(all, amount, most));
        modest.or_else(|| self.least_from(here, amount)).or_else(|| self.least_from(all, amount))
    }

    fn least_from(&self, of: &[&Ranks], amount: u64) -> Option<Vec<Rank>> {
        let each = of.iter().filter_map(|ranks| ranks.from(amount).next());
        // Of equals, the first: that is the one that is here.
        Some(vec![each.min_by_key(|rank| rank.amount)?.clone()])
    }

    /// An exact token, or one that is a little too large.
    fn little(&self, of: &[&Ranks], amount: u64) -> Option<Vec<Rank>> {
        let found = self.least_from(of, amount)?;
        (!exceeds(found[0].amount, amount)).then_some(found)
    }

    /// The largest ones below the amount, the last one replaced by the smallest that still reaches.
    fn small_ones(&self, of: &[&Ranks], amount: u64, most: usize) -> Option<Vec<Rank>> {
        let mut chosen: Vec<Rank> = Vec::new();
        let mut left = amount;
        let each = of.iter().map(|ranks| ranks.below(amount).rev());
        for rank in Merged::new(each) {
            if chosen.len() >= most {
                return None;
            }
            if rank.amount >= left {
                let is_left = |rank: &&Rank| !chosen.contains(rank);
                let each = of.iter().filter_map(|ranks| ranks.from(left).find(is_left));
                let last = each.min_by_key(|rank| rank.amount).unwrap_or(rank).clone();
                chosen.push(last);
                return Some(chosen);
            }
            left -= rank.amount;
            chosen.push(rank.clone());
        }
        None
    }
}

/// Descending sequences as one; of equals, those of the first sequence come first.
struct Merged<'a, I: Iterator<Item = &'a Rank>> {
    each: Vec<Peekable<I>>,
}

impl<'a, I: Iterator<Item = &'a Rank>> Merged<'a, I> {
    fn new(each: impl Iterator<Item = I>) -> Merged<'a, I> {
        Merged { each: each.map(Iterator::peekable).collect() }
    }
}

impl<'a, I: Iterator<Item = &'a Rank>> Iterator for Merged<'a, I> {
    type Item = &'a Rank;

    fn next(&mut self) -> Option<&'a Rank> {
        let mut best: Option<(usize, u64)> = None;
        for (index, sequence) in self.each.iter_mut().enumerate() {
            if let Some(rank) = sequence.peek()
                && best.is_none_or(|(_, amount)| rank.amount > amount)
            {
                best = Some((index, rank.amount));
            }
        }
        self.each[best?.0].next()
    }
}

/// Returns true for a token that is so large that it is broken only if nothing else serves.
pub(crate) fn exceeds(token: u64, amount: u64) -> bool {
    token > amount.saturating_mul(LITTLE)
}

/// Returns all these tokens in the order in which a selection of that amount prefers them: those that serve
/// alone and are at most a little too large, then the smaller ones, largest first, then the large ones.
pub(crate) fn preferred(ranks: &Ranks, amount: u64) -> impl Iterator<Item = &Rank> {
    let fits = ranks.from(amount).take_while(move |rank| !exceeds(rank.amount, amount));
    let large = ranks.from(amount).skip_while(move |rank| !exceeds(rank.amount, amount));
    fits.chain(ranks.below(amount).rev()).chain(large)
}

/// As [`preferred`], without those that would break a large token.
pub(crate) fn spares(ranks: &Ranks, amount: u64) -> impl Iterator<Item = &Rank> {
    preferred(ranks, amount).take_while(move |rank| !exceeds(rank.amount, amount))
}

/// Returns the sum of the largest so many of these amounts.
pub(crate) fn reach(ranks: &Ranks, most: usize) -> u128 {
    ranks.iter().rev().take(most).map(|rank| u128::from(rank.amount)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn ranks(name: &str, amounts: &[u64]) -> Ranks {
        let mut ranks = Ranks::default();
        for (number, amount) in amounts.iter().enumerate() {
            let id = TokenId::new(format!("{name}{number}").into_bytes()).expect("it is an id");
            let order = order_of(7, &id);
            ranks.set(&Rank { amount: *amount, order, id }, true);
        }
        ranks
    }

    /// Returns the amounts of the fit, those from elsewhere below zero.
    fn fit(here: &[u64], elsewhere: &[u64], amount: u64, most: usize) -> Option<Vec<i64>> {
        let (here, elsewhere) = (ranks("h", here), ranks("e", elsewhere));
        let chosen = Free { here: &here, elsewhere: &elsewhere }.fit(amount, most)?;
        let signed = |rank: &Rank| match rank.id.as_bytes()[0] {
            b'h' => rank.amount as i64,
            _ => -(rank.amount as i64),
        };
        Some(chosen.iter().map(signed).collect())
    }

    #[test]
    fn the_table_of_fits() {
        // An exact one, before one that is a little too large.
        assert_eq!(fit(&[3, 5, 6, 200], &[], 5, 9), Some(vec![5]));
        assert_eq!(fit(&[3, 6, 20, 200], &[], 5, 9), Some(vec![6]));
        assert_eq!(fit(&[3, 1, 20, 200], &[], 5, 9), Some(vec![20]));
        // Beyond four times the amount small ones come first: few, and the last as small as possible.
        assert_eq!(fit(&[4, 3, 2, 1, 1, 21], &[], 5, 9), Some(vec![4, 1]));
        assert_eq!(fit(&[4, 4, 4, 3, 21], &[], 5, 9), Some(vec![4, 3]));
        assert_eq!(fit(&[4, 21], &[], 5, 9), Some(vec![21]));
        assert_eq!(fit(&[1, 200], &[], 1, 9), Some(vec![1]));
        assert_eq!(fit(&[200], &[], 1, 9), Some(vec![200]));
        assert_eq!(fit(&[2, 2], &[], 5, 9), None);
        assert_eq!(fit(&[], &[], 1, 9), None);
    }

    #[test]
    fn what_is_here_comes_first_but_breaks_no_large_token() {
        assert_eq!(fit(&[6], &[5], 5, 9), Some(vec![6]));
        assert_eq!(fit(&[200], &[5], 5, 9), Some(vec![-5]));
        assert_eq!(fit(&[200, 3], &[3], 5, 9), Some(vec![3, -3]));
        assert_eq!(fit(&[200], &[150], 5, 9), Some(vec![200]));
        assert_eq!(fit(&[4], &[150], 5, 9), Some(vec![-150]));
        // Of equal ones, what is here.
        assert_eq!(fit(&[3, 3], &[3, 3, 3], 8, 9), Some(vec![3, 3, -3]));
    }

    #[test]
    fn at_most_so_many() {
        assert_eq!(fit(&[1, 1, 1, 1, 1], &[], 5, 5), Some(vec![1; 5]));
        assert_eq!(fit(&[1, 1, 1, 1, 1], &[], 5, 4), None);
        assert_eq!(fit(&[1, 1, 1, 1, 1, 100], &[], 5, 4), Some(vec![100]));
    }

    #[test]
    fn a_fit_reaches_the_amount_and_needs_each_of_its_tokens() {
        let mut dice = Dice::new(11);
        let mut found = 0;
        for _ in 0..2_000 {
            let mut draw = |most| -> Vec<u64> { (0..dice.below(12)).map(|_| 1 + dice.below(most)).collect() };
            let (here, elsewhere) = (draw(30), draw(30));
            let amount = 1 + dice.below(60);
            let total: u64 = here.iter().chain(&elsewhere).sum();
            let Some(chosen) = fit(&here, &elsewhere, amount, 100) else {
                assert!(total < amount, "{here:?} {elsewhere:?} reach {amount}");
                continue;
            };
            found += 1;
            let amounts: Vec<u64> = chosen.iter().map(|it| it.unsigned_abs()).collect();
            let sum: u64 = amounts.iter().sum();
            let least = amounts.iter().min().expect("it has one");
            assert!(sum >= amount, "{chosen:?} for {amount}");
            assert!(sum - least < amount, "{chosen:?} for {amount}: one too many");
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn equal_tokens_have_another_order_in_each_replica() {
        let id = |number: u32| TokenId::new(number.to_be_bytes().to_vec()).expect("it is an id");
        let first = |seed: u64| (0..100).min_by_key(|number| order_of(seed, &id(*number)));
        let firsts: BTreeSet<_> = (0..100).map(first).collect();
        assert!(firsts.len() > 50, "{firsts:?}");
    }

    #[test]
    fn preferences_and_spares() {
        let ranks = ranks("h", &[1, 3, 5, 9, 20, 21]);
        let amounts = |ranks: Vec<&Rank>| ranks.iter().map(|rank| rank.amount).collect::<Vec<_>>();
        assert_eq!(amounts(preferred(&ranks, 5).collect()), [5, 9, 20, 3, 1, 21]);
        assert_eq!(amounts(spares(&ranks, 5).collect()), [5, 9, 20, 3, 1]);
        assert_eq!((reach(&ranks, 2), reach(&ranks, 9)), (41, 59));
    }
}
