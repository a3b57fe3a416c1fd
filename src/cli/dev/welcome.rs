//! The first output of a playground.

use std::fmt::{self, Display, Formatter};

use super::plan::Plan;

/// The endpoints, and some commands to try.
pub(super) fn welcome(plan: &Plan) -> impl Display {
    fmt::from_fn(move |f| {
        let datacenters = if plan.dcs.len() == 1 { "datacenter" } else { "datacenters" };
        writeln!(f, "geolock playground: {} {datacenters} on this machine", plan.dcs.len())?;
        writeln!(f, "data in {}", plan.data.display())?;
        writeln!(f)?;
        for dc in &plan.dcs {
            let listen = plan.listen(*dc);
            let name = dc.to_string();
            writeln!(
                f,
                "  {name:<5} clients {}   datacenters {} (UDP)   http://{}/metrics",
                listen.client,
                listen.quic.port(),
                listen.http
            )?;
        }
        if let [first, rest @ ..] = &plan.joining[..] {
            let last = rest.last().map_or(String::new(), |last| format!(" to {last}"));
            writeln!(f, "  {first}{last} join now")?;
        }
        round_trips(f, plan)?;
        commands(f, plan)?;
        write!(f, "\nCtrl-C stops it.")
    })
}

fn round_trips(f: &mut Formatter<'_>, plan: &Plan) -> fmt::Result {
    let trips = plan.round_trips();
    if trips.is_empty() {
        return Ok(());
    }
    // A dozen are enough to read.
    let (shown, rest) = trips.split_at(trips.len().min(12));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    writeln!(f, "\nsimulated round trips: {}{more}", shown.join(", "))
}

fn commands(f: &mut Formatter<'_>, plan: &Plan) -> fmt::Result {
    let Some(&first) = plan.dcs.first() else { return Ok(()) };
    let (other, last) = (*plan.dcs.get(1).unwrap_or(&first), *plan.dcs.last().unwrap_or(&first));
    let (here, there) = (connect(plan, first), connect(plan, other));
    writeln!(f, "\nTry, each in a terminal of its own:\n")?;
    writeln!(
        f,
        "  geolock lock{here} demo -- sh -c 'echo \"{first} has it, token $GEOLOCK_TOKEN\"; sleep 20'"
    )?;
    writeln!(f, "  geolock lock{there} demo -- echo 'now {other} has it'")?;
    writeln!(f, "  geolock describe{here} demo")?;
    let folder = if plan.is_default { String::new() } else { format!(" --data {}", plan.data.display()) };
    let id = last.get();
    writeln!(f, "\nDatacenters come and go while it runs:\n")?;
    writeln!(f, "  geolock dev add{folder}  # another one joins")?;
    writeln!(f, "  geolock member remove {id}{here}  # one leaves")?;
    writeln!(f, "  geolock dev stop {id}{folder}  # one is switched off")?;
    writeln!(f, "  geolock member list{here}")
}

/// Returns the options that connect a client to that datacenter; none if they are the defaults.
fn connect(plan: &Plan, dc: geolock_api::names::DcId) -> String {
    let endpoint = plan.listen(dc).client;
    match (plan.is_default, dc.get()) {
        (true, 0) => String::new(),
        (true, _) => format!(" --connect {endpoint}"),
        (false, 0) => format!(" --tls {}", plan.client_tls().display()),
        (false, _) => format!(" --connect {endpoint} --tls {}", plan.client_tls().display()),
    }
}
