//! The messages of a waiting `geolock lock` on standard error: the holders, and its place in the queue.
//!
//! It asks its server from time to time, as `geolock describe` does, and shows one line on the terminal,
//! which it removes when it is dropped. The id of the request is not known before the grant: it is the last
//! request with its label that waits here at the first query.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use tokio::time::sleep;

use super::dc_names::DcNames;
use super::describe::label;
use super::print::{lock_name, tell};
use crate::base::time::brief;
use geolock_api::names::LockName;
use geolock_api::proto::{self, RequestId};
use geolock_client::{Client, ClientError, LockDescription, Mode, Reason as Refused};

/// Most waits are over before a person could read a line.
const FIRST: Duration = Duration::from_millis(500);
/// In a log or a mail a line stays, so only a wait that may be a surprise is reported, and seldom again.
const FIRST_CAUSE: Duration = Duration::from_secs(5);
const NEXT_CAUSE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(1);
/// Most locks that are queried: one held lock among them is enough to report.
const MOST: usize = 4;

/// A wait to be reported.
pub(super) struct Waiting<'a> {
    pub names: &'a [LockName],
    pub mode: Mode,
    pub label: &'a str,
}

/// The form of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// A new line when the cause changes: another holder, or a datacenter out of reach.
    Causes,
    /// One line of the terminal, rewritten each time, while this process owns the terminal.
    OneLine,
    /// A new line whenever the text changes.
    Lines,
}

impl Telling {
    /// Returns the form that suits standard error.
    pub(super) fn of(verbose: bool) -> Telling {
        match (io::stderr().is_terminal(), verbose) {
            (true, _) => Telling::OneLine,
            (false, true) => Telling::Lines,
            (false, false) => Telling::Causes,
        }
    }
}

/// The reason of a wait.
#[derive(Default)]
struct Reason {
    /// Without times and places, which change all the time.
    cause: String,
    text: String,
}

/// The line on the terminal; removed when dropped.
#[derive(Default)]
struct Line(String);

impl Line {
    fn show(&mut self, text: &str) {
        if !has_terminal() {
            return self.0.clear();
        }
        // A terminal that does not report its width reports 0.
        let width = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width < 20 { 80 } else { width };
        self.0 = text.chars().take(width - 1).collect();
        // An error must not matter: the terminal may be gone.
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}", self.0);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.0.is_empty() && has_terminal() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Returns true if this process owns the terminal. In the background a line would overwrite the prompt of the
/// shell, or the output of another process.
fn has_terminal() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

/// Returns true if another query would be refused again.
fn is_not_allowed(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(Refused::PermissionDenied | Refused::Unauthenticated, _))
}

impl Waiting<'_> {
    /// Never returns: the caller drops the future when the wait is over.
    pub(super) async fn tell(&self, client: &Client, how: Telling) {
        sleep(if how == Telling::Causes { FIRST_CAUSE } else { FIRST }).await;
        let names = DcNames::of_answer(client.status().await);
        let (mut line, mut said, mut ours) = (Line::default(), Reason::default(), None);
        let mut next = Instant::now();
        let mut looked_at: Vec<_> = self.names.iter().take(MOST).collect();
        loop {
            for name in looked_at.clone() {
                let lock = match client.describe_lock(name).await {
                    Ok(lock) => lock,
                    Err(error) => {
                        // The client handles a server that does not answer; the last report stays.
                        looked_at.retain(|other| *other != name || !is_not_allowed(&error));
                        continue;
                    }
                };
                ours = ours.or_else(|| self.find(&lock, &names));
                let Some(reason) = self.reason(&lock, &names, ours.as_ref()) else { continue };
                match how {
                    Telling::OneLine => line.show(&reason.text),
                    Telling::Lines if reason.text != said.text => {
                        tell(&reason.text);
                        said = reason;
                    }
                    Telling::Causes if reason.cause != said.cause && Instant::now() >= next => {
                        tell(&reason.text);
                        (said, next) = (reason, Instant::now() + NEXT_CAUSE);
                    }
                    _ => {}
                }
                break;
            }
            if looked_at.is_empty() {
                return std::future::pending().await;
            }
            sleep(AGAIN).await;
        }
    }

    /// Returns the waiting request that is probably this one.
    fn find(&self, lock: &LockDescription, names: &DcNames) -> Option<RequestId> {
        let of_us = |waiter: &&proto::Waiter| {
            let is_here = waiter.request.as_ref().is_some_and(|request| !names.is_elsewhere(request.dc));
            is_here && waiter.label == self.label
        };
        lock.waiters.iter().rev().find(of_us)?.request
    }

    /// Returns the reason for which this lock is waited for; `None` if it does not block the request.
    fn reason(&self, lock: &LockDescription, names: &DcNames, ours: Option<&RequestId>) -> Option<Reason> {
        let exclusive = i32::from(proto::Mode::Exclusive);
        let is_rival = |mode: i32| self.mode == Mode::Exclusive || mode == exclusive;
        let mut rivals = lock.holders.iter().filter(|holder| is_rival(holder.mode));
        let (mut parts, mut causes) = (Vec::new(), Vec::new());
        if let Some(holder) = rivals.next() {
            let more = match rivals.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let held_for = brief(Duration::from_millis(holder.held_for_ms));
            let who = format!("held by {} in {}", label(&holder.label), names.show(holder.dc));
            parts.push(format!("{who} for {held_for}{more}"));
            causes.push(who);
        }
        if !lock.unreachable_dcs.is_empty() {
            let away = format!("needs {}, out of reach", names.list(&lock.unreachable_dcs));
            parts.push(away.clone());
            causes.push(away);
        }
        let place =
            ours.and_then(|ours| lock.waiters.iter().position(|it| it.request.as_ref() == Some(ours)));
        match place {
            Some(0) if parts.is_empty() => {}
            Some(place) => parts.push(format!("place {} of {} in the queue", place + 1, lock.waiting)),
            None if lock.waiting > 1 => parts.push(format!("{} in the queue", lock.waiting)),
            None => {}
        }
        let said = parts.join("; ");
        let name = lock_name(&lock.name, lock.home);
        let text = format!("geolock: waiting for {name}: {said}");
        (!said.is_empty()).then(|| Reason { cause: format!("{name}: {}", causes.join("; ")), text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::proto::{Holder, Waiter};
    use geolock_client::Status;

    #[test]
    fn it_says_who_has_it_and_the_place_in_the_queue() {
        let exclusive = proto::Mode::Exclusive.into();
        let name = LockName::try_from("x").expect("a name");
        let waiter = |n, dc, label: &str| Waiter {
            request: Some(RequestId { dc, n }),
            mode: exclusive,
            label: label.into(),
            ..Waiter::default()
        };
        let mut lock = LockDescription {
            name: name.as_bytes().to_vec().into(),
            holders: vec![Holder {
                dc: 1,
                mode: exclusive,
                label: "eve\x1b".into(),
                held_for_ms: 61_000,
                ..Holder::default()
            }],
            waiters: vec![waiter(1, 1, ""), waiter(2, 0, "me"), waiter(3, 0, "me"), waiter(4, 0, "other")],
            waiting: 7,
            ..LockDescription::default()
        };
        let names = DcNames::of(&Status { dc: 0, dc_name: "fra".into(), ..Status::default() });
        let waiting = Waiting { names: &[name], mode: Mode::Shared, label: "me" };
        let ours = waiting.find(&lock, &names);
        assert_eq!(ours, Some(RequestId { dc: 0, n: 3 }), "the last one");
        let said = waiting.reason(&lock, &names, ours.as_ref()).expect("it is held");
        assert_eq!(
            said.text,
            r"geolock: waiting for x: held by eve\u{1b} in dc1 for 1 min 1 s; place 3 of 7 in the queue"
        );
        assert_eq!(said.cause, r"x: held by eve\u{1b} in dc1");
        lock.holders[0].mode = proto::Mode::Shared.into();
        lock.waiters.drain(..2);
        assert!(waiting.reason(&lock, &names, ours.as_ref()).is_none(), "it is about to be had");
        lock.unreachable_dcs = vec![2];
        let said = waiting.reason(&lock, &names, ours.as_ref()).expect("a part is away");
        assert_eq!(said.text, "geolock: waiting for x: needs dc2, out of reach; place 1 of 7 in the queue");
        assert_eq!(said.cause, "x: needs dc2, out of reach");
    }
}
