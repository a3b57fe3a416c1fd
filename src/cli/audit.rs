//! `geolock audit`: lists forced recoveries, and the force releases of operators.

use serde_json::{Value, json};

use super::connect::{self, ConnectArgs};
use super::describe::{label, mode, request};
use super::failure::Failure;
use super::print::{lock_name, named, number, print, utc};
use super::recover;
use geolock_client::AuditRecord;

/// Show the forced recoveries of the cluster, and the force releases of operators in this datacenter.
///
/// First, for each forced recovery, what was lost. Then the last 1000 force releases, the latest last, a
/// line for each request that lost its locks: time, victim, operator and reason. Every datacenter has its
/// own list.
#[derive(clap::Args, Clone, Debug)]
pub struct AuditArgs {
    /// For programs: one JSON object a line; a lock is `name`, or `name_base64` if it is not UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: AuditArgs) -> Result<(), Failure> {
    let admin = args.connect.admin_client().await?;
    let rows = admin.audit().await.map_err(connect::failure)?;
    let losses = admin.losses().await.map_err(connect::failure)?;
    if rows.is_empty() && losses.is_empty() && !args.json {
        return print("No lock was ever taken away here.");
    }
    for report in &losses {
        if args.json { print(recover::json(report))? } else { print(recover::text(report))? }
    }
    rows.iter().try_for_each(|row| if args.json { print(json(row)) } else { print(text(row)) })
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
