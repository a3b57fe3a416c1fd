//! `geolock audit`: lists forced recoveries, force releases, refused calls of operators, and the decisions
//! about the members.

use serde_json::{Value, json};

use super::connect::{self, ConnectArgs};
use super::describe::{label, mode, request};
use super::failure::Failure;
use super::fallen;
use super::print::{harmless, lock_name, named, number, print, utc};
use super::recover;
use geolock_api::proto::AuditResponse;
use geolock_client::{AuditRecord, DecisionRecord, RefusalRecord};

/// Show forced recoveries, force releases, refused calls of operators, and decisions about the members.
///
/// First the losses of each forced recovery of the cluster. Then the last 1000 force releases, the latest
/// last, one line for each request that lost its locks: time, victim, operator and reason. Every datacenter
/// has its own list. Then the last 1000 refused calls of operators since the last start of this server:
/// release --force, audit, and those about members. Repetitions are one line, with their number. Beyond 1000,
/// the caller with the most lines loses its oldest. Then the last 1000 decisions, with the times at which
/// this datacenter learnt them since its last start. The decisions are the same in every datacenter.
#[derive(clap::Args, Clone, Debug)]
pub struct AuditArgs {
    /// For programs: one JSON object a line; a lock is `name`, or `name_base64` if it is not UTF-8; an object
    /// with `decision` is a decision, one with `refused_call` a refused call
    #[arg(long)]
    json: bool,
    /// Name the locks and counters that the last 16 evictions and forced recoveries concerned: at most 1000
    /// of each kind
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: AuditArgs) -> Result<(), Failure> {
    let audit = args.connect.admin_client().await?.whole_audit().await.map_err(connect::failure)?;
    let AuditResponse { records, decisions, losses, refusals, refusals_dropped, fallen } = audit;
    for report in &losses {
        if args.json { print(recover::json(report))? } else { print(recover::text(report))? }
    }
    for named in fallen.iter().filter(|_| args.list) {
        if args.json { print(fallen::json(named))? } else { print(fallen::text(named))? }
    }
    if records.is_empty() && !args.json {
        print("No lock was ever taken away here.")?;
    }
    records.iter().try_for_each(|row| if args.json { print(json(row)) } else { print(text(row)) })?;
    match refusals_dropped {
        0 => {}
        dropped if args.json => print(json!({ "refused_calls_displaced": dropped }))?,
        dropped => print(format!("refused  {dropped} lines were displaced by others"))?,
    }
    refusals
        .iter()
        .try_for_each(|it| if args.json { print(refusal_json(it)) } else { print(refused(it)) })?;
    decisions.iter().try_for_each(|it| if args.json { print(decision_json(it)) } else { print(decided(it)) })
}

/// `refused  2026-01-02 03:04:05 UTC  client bob may not force-release the lock "x" (ForceRelease from
/// 10.0.0.7:4711): no rule of this server (api.acl) allows it; 3 times since 2026-01-02 03:04:01 UTC`
fn refused(refusal: &RefusalRecord) -> String {
    let RefusalRecord { caller, address, call, action, resource, reason, .. } = refusal;
    let whose = if caller.is_empty() { "a caller that is not identified" } else { caller };
    let what = match &**action {
        "" => whose.to_owned(),
        action => format!("{whose} may not {action} {resource}"),
    };
    let again = match refusal.count {
        0 | 1 => String::new(),
        count => format!("; {count} times since {}", utc(refusal.first_at_ms)),
    };
    let said = harmless(&format!("{what} ({call} from {address}): {reason}"));
    format!("refused  {}  {said}{again}", utc(refusal.last_at_ms))
}

fn refusal_json(refusal: &RefusalRecord) -> Value {
    json!({
        "refused_call": refusal.call,
        "first_at_ms": refusal.first_at_ms,
        "at_ms": refusal.last_at_ms,
        "count": number(refusal.count),
        "caller": refusal.caller,
        "address": refusal.address,
        "action": refusal.action,
        "resource": refusal.resource,
        "reason": refusal.reason,
    })
}

/// `decision 8  2026-01-02 03:04:05 UTC  dc2 leaves`
fn decided(decision: &DecisionRecord) -> String {
    let at = decision.at_ms.map_or_else(|| "before the last start  ".into(), utc);
    let void = if decision.refused {
        " (without effect: it was decided already, or the members had changed)"
    } else {
        ""
    };
    format!("decision {}  {at}  {}{void}", decision.number, harmless(&decision.text))
}

fn decision_json(decision: &DecisionRecord) -> Value {
    let DecisionRecord { number, at_ms, text, refused } = decision;
    json!({ "decision": number, "at_ms": at_ms, "text": text, "refused": refused })
}

/// `3  2026-01-02 03:04:05 UTC  client ann took orders (exclusive, token 77) from bob@web: it hangs`
fn text(row: &AuditRecord) -> String {
    let force_released = row.force_released.clone().unwrap_or_default();
    let (at, lost, reason) = (utc(row.at_ms), lost(row), label(&force_released.reason));
    format!("{}  {at}  {} took {}: {reason}", row.number, label(&force_released.operator), lost)
}

/// Returns `orders (exclusive, token 77) from bob@web`, and how many other locks were lost with it.
pub(super) fn lost(row: &AuditRecord) -> String {
    let more = match row.locks.saturating_sub(1) {
        0 => String::new(),
        1 => ", with 1 other lock".into(),
        more => format!(", with {more} other locks"),
    };
    let (name, whose) = (lock_name(&row.name, row.home), label(&row.label));
    format!("{name} ({}, token {}) from {whose}{more}", mode(row.mode), row.token)
}

pub(super) fn json(row: &AuditRecord) -> Value {
    let force_released = row.force_released.clone().unwrap_or_default();
    let rest = json!({
        "number": row.number,
        "at_ms": row.at_ms,
        "operator": force_released.operator,
        "reason": force_released.reason,
        "mode": mode(row.mode),
        "request": request(row.request.as_ref()),
        "token": number(row.token),
        "label": row.label,
        "lease": format!("{:x}", row.lease),
        "locks": row.locks,
    });
    named(&row.name, row.home, rest)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use geolock_api::proto::{ForceReleased, Mode};

    #[test]
    fn a_decision_is_a_line_with_or_without_its_time() {
        let mut decision = DecisionRecord {
            number: 8,
            at_ms: Some(1_767_323_045_678),
            text: "dc2 leaves".into(),
            refused: false,
        };
        assert_eq!(decided(&decision), "decision 8  2026-01-02 03:04:05 UTC  dc2 leaves");
        assert_eq!(decision_json(&decision)["at_ms"], 1_767_323_045_678_u64);
        (decision.at_ms, decision.refused) = (None, true);
        let said = "decision 8  before the last start    dc2 leaves (without effect: it was decided already, or the members had changed)";
        assert_eq!(decided(&decision), said);
    }

    #[test]
    fn a_refusal_is_a_line_with_its_repetitions() {
        let mut refusal = RefusalRecord {
            first_at_ms: 1_767_323_041_000,
            last_at_ms: 1_767_323_045_678,
            count: 1,
            caller: "client bob".into(),
            address: "10.0.0.7:4711".into(),
            call: "ForceRelease".into(),
            action: "force-release".into(),
            resource: "the lock \"x\"".into(),
            reason: "no rule\u{1b} allows it".into(),
        };
        let once = "refused  2026-01-02 03:04:05 UTC  client bob may not force-release the lock \"x\" (ForceRelease from 10.0.0.7:4711): no rule\\u{1b} allows it";
        assert_eq!(refused(&refusal), once);
        refusal.count = 3;
        assert_eq!(refused(&refusal), format!("{once}; 3 times since 2026-01-02 03:04:01 UTC"));
        assert_eq!(
            (&refusal_json(&refusal)["refused_call"], &refusal_json(&refusal)["count"]),
            (&"ForceRelease".into(), &3.into())
        );
        (refusal.caller, refusal.action, refusal.resource) = Default::default();
        refusal.reason = "show a token".into();
        let said = "refused  2026-01-02 03:04:05 UTC  a caller that is not identified (ForceRelease from 10.0.0.7:4711): show a token; 3 times";
        assert!(refused(&refusal).starts_with(said), "{}", refused(&refusal));
    }

    #[test]
    fn a_line_says_it_all_and_plays_no_tricks() {
        let mut row = AuditRecord {
            number: 3,
            at_ms: 1_767_323_045_678,
            force_released: Some(ForceReleased {
                operator: "client ann".into(),
                reason: "it\u{1b} hangs".into(),
            }),
            name: Bytes::from_static(b"orders"),
            mode: Mode::Exclusive.into(),
            token: 77,
            label: "bob@web".into(),
            locks: 1,
            ..AuditRecord::default()
        };
        let said = "3  2026-01-02 03:04:05 UTC  client ann took orders (exclusive, token 77) from bob@web: it\\u{1b} hangs";
        assert_eq!(text(&row), said);
        row.locks = 3;
        assert_eq!(lost(&row), "orders (exclusive, token 77) from bob@web, with 2 other locks");
        assert_eq!(json(&row)["reason"], "it\u{1b} hangs");
    }
}
