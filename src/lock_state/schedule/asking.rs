//! Requests for enough locks: what they ask other datacenters for, and when they ask again
//! (`docs/algorithm/ownership.md#29-enough-of-many-locks`).

use super::Schedule;
use super::enough::choose_again;
use crate::base::bugs::Bug;
use crate::base::time::Instant;
use crate::causal_log::Wants;
use crate::lock_state::enough::{Rank, Ranked};
use crate::lock_state::lock::LockIndex;
use crate::lock_state::request::{Publication, RequestIndex};
use crate::lock_state::tables::Tables;
use geolock_api::names::{LockName, Mode, RequestId};
use std::time::Duration;

/// Most further candidates that are asked for beside a target.
const SPARES: usize = 64;
/// Added to two round trips until a request asks again, at least.
const MARGIN: Duration = Duration::from_millis(50);
/// The same for each candidate. Every datacenter walks all locks of a request that is published again, so a
/// request for thousands of locks asks more rarely, and costs others no more of their time than a small one.
const MARGIN_OF_ONE: Duration = Duration::from_micros(200);
/// A request that has asked for all of its candidates asks again after a time that grows up to this factor.
const MAX_SLOWER: u32 = 8;

impl Schedule {
    /// Publishes a request that lacks a part of this lock, which it is first for.
    pub(super) fn publish_enough(
        &mut self,
        tables: &mut Tables,
        request: RequestIndex,
        lock: LockIndex,
        now: Instant,
    ) {
        let Some(row) = tables.enough.get(request) else { return };
        let is_asked = row.place_of(lock).is_some_and(|place| row.is_asked[place as usize]);
        match tables.requests[request].local().map(|local| local.publication) {
            Some(Publication::Published { .. }) if !is_asked => tables.enough.ask_again(request),
            Some(Publication::InThisStep) if !is_asked => self.set_published(tables, request, now),
            Some(Publication::Unpublished) => {
                self.set_published(tables, request, now);
                let is_new = tables.requests.publish(request);
                debug_assert!(is_new, "it was not published");
                self.output.requests.push(request);
            }
            _ => {}
        }
    }

    /// Requests that have waited for too long for what they asked for ask for something else.
    pub fn expire_enough(&mut self, tables: &mut Tables, now: Instant) {
        while let Some(request) = tables.enough.pop_expired(now) {
            if !tables.view.permissions.append {
                tables.enough.look_again(request, now);
                continue;
            }
            choose_again(tables, request, now);
            match tables.requests[request].local().is_some_and(|it| it.publication.is_published()) {
                true => tables.enough.ask_again(request),
                // If it lacks a part now, it is published by the rules, and gets another timer.
                false => tables.enough.look_again(request, now),
            }
        }
    }

    /// Publishes a request again, under a new id and with its old time: one entry withdraws the old id and
    /// has the new one, so that no request overtakes it.
    pub fn ask_again(&mut self, tables: &mut Tables, request: RequestIndex, id: RequestId, now: Instant) {
        let row = &tables.requests[request];
        let (old, publication) = (row.id, row.local().map(|local| local.publication));
        if !matches!(publication, Some(Publication::Published { .. })) {
            return;
        }
        tables.note_before(old);
        tables.requests.withdraw(request);
        tables.request_table.remove(old);
        self.output.replaced.insert(request, old);
        tables.rename(request, id, now);
        self.set_published(tables, request, now);
        tables.requests.publish_again(request);
        self.output.requests.push(request);
    }

    /// Decides which locks a request asks for: its target, also what is here now, as an earlier request may
    /// take that away; and further candidates that are elsewhere.
    fn set_published(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) {
        let ranked = tables.ranked(request, now);
        let Some(row) = tables.enough.get(request) else { return };
        let mut asked: Vec<u32> = row.target().map(|(place, _)| place).collect();
        if tables.view.bugs.has(Bug::EnoughMissingOnly) {
            asked.retain(|place| matches!(ranked[*place as usize].rank, Rank::Elsewhere { .. }));
        }
        let is_spare =
            |it: &&Ranked| matches!(it.rank, Rank::Elsewhere { .. }) && !row.members.contains(it.place);
        let mut spares: Vec<&Ranked> = ranked.iter().filter(is_spare).collect();
        spares.sort_by_key(|it| (it.rank, it.place));
        let (mut more, amount) = (0_u128, row.limits().amount);
        for spare in spares.into_iter().take(SPARES) {
            if more >= amount {
                break;
            }
            more += u128::from(spare.weight);
            asked.push(spare.place);
        }
        let distance = asked.iter().filter_map(|place| match ranked[*place as usize].rank {
            Rank::Elsewhere { distance, .. } => Some(distance),
            _ => None,
        });
        let (distance, rounds) = (distance.max().unwrap_or_default(), row.rounds);
        let margin = MARGIN.max(MARGIN_OF_ONE * row.locks.len() as u32);
        let names: Vec<(LockName, Mode)> = asked
            .iter()
            .map(|place| (row.of.candidates()[*place as usize].0.clone(), Mode::Exclusive))
            .collect();
        let Ok(wants) = Wants::all(names) else {
            // Only with the deliberate bug above there may be none.
            debug_assert!(tables.view.bugs.has_any(), "a part of a list that was checked");
            return;
        };
        if let Some(row) = tables.enough.get_mut(request) {
            row.rounds = rounds.saturating_add(1);
            row.ask_for(&asked, wants);
        }
        let slower = (1 + rounds / 4).min(MAX_SLOWER);
        tables.enough.set_timer(request, Some(now + (4 * distance + margin) * slower));
    }
}
