//! `geolock watch`: shows events of locks as they occur.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value as Json, json};

use super::connect::{self, ConnectArgs};
use super::dc_names::DcNames;
use super::describe;
use super::failure::Failure;
use super::home::HomeArgs;
use super::kv::show;
use super::print::{insert_lock_name, number, print};
use super::stopping::StopSignals;
use geolock_api::names::{DcId, LockName};
use geolock_client::{Holding, LockEvent, LockMove, LockWatch, LockWatchRequest, Mode, Snapshot};

/// Show acquisitions, releases and moves of locks as they occur, until Ctrl-C
///
/// One line per event. First the holders in the datacenter that answers: `held orders exclusive by me token
/// 7`. Then the events there: `granted ...`, `released ...`. And from any datacenter, `moved orders to dc1: 3
/// parts from dc0`, when the move is durable here. Every move is shown once. Holders are shown as long as the
/// output of this command is read: if it falls behind, or loses the connection, it prints `reset` and shows
/// the present holders again. While no server answers it waits.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0 after Ctrl-C or SIGTERM, 1: the server no longer keeps the moves since --from (watch without it), 69: no \
server reachable at the beginning, 77: the server does not allow it, 64: wrong usage.")]
pub struct WatchArgs {
    /// Watch these locks [default: all locks, if there is no --prefix]
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,
    #[command(flatten)]
    home: HomeArgs,
    /// Watch also the locks whose names begin with this; can be given several times, 100 names and prefixes
    /// in all
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<OsString>,
    /// Show also the moves since this snapshot, printed by --snapshot in any datacenter
    #[arg(long, value_name = "SNAPSHOT", value_parser = show::parse_snapshot)]
    from: Option<Snapshot>,
    /// At the end, print a snapshot as the last line, to resume with --from
    #[arg(long)]
    snapshot: bool,
    /// Print also, from time to time, a snapshot up to which all moves have been shown
    #[arg(long)]
    progress: bool,
    /// For programs: a JSON object per event and lock; a lock is `name`, or `name_base64` if it is not UTF-8.
    /// From `holders_synced` on, the holders shown since `holders_reset` are complete
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: WatchArgs) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let begun = tokio::select! {
        begun = begin(&args) => begun,
        _ = signals.next() => return Ok(()),
    };
    let (mut watch, names) = begun?;
    let mut screen =
        Screen { names, is_current: false, has_begun: false, progress: args.progress, json: args.json };
    loop {
        let event = tokio::select! {
            event = watch.next() => event.map_err(connect::failure)?,
            _ = signals.next() => break,
        };
        // Written line by line even if it is no terminal, so a reader has each line at once.
        screen.see(&event, watch.position()).into_iter().try_for_each(print)?;
    }
    if args.snapshot { print(show::snapshot(watch.position())) } else { Ok(()) }
}

async fn begin(args: &WatchArgs) -> Result<(LockWatch, DcNames), Failure> {
    let mut request = LockWatchRequest::default();
    let home = args.home.find(&args.connect).await?;
    for name in &args.names {
        request = request.and(&home.lock(name)?);
    }
    for prefix in &args.prefixes {
        request = request.and_prefix(prefix.as_bytes());
    }
    if args.names.is_empty() && args.prefixes.is_empty() {
        request = request.and_prefix(b"");
    }
    if let Some(snapshot) = &args.from {
        request = request.from_snapshot(snapshot);
    }
    let reader = args.connect.read_client().await?;
    let names = DcNames::of_answer(reader.status().await);
    Ok((reader.watch_locks(request).await.map_err(connect::failure)?, names))
}

/// The output of events.
struct Screen {
    names: DcNames,
    /// All present holders have been shown.
    is_current: bool,
    has_begun: bool,
    progress: bool,
    json: bool,
}

impl Screen {
    /// Returns the lines to print.
    fn see(&mut self, event: &LockEvent, position: &Snapshot) -> Vec<String> {
        let lines = self.lines(event, position);
        match event {
            LockEvent::HoldersReset => (self.is_current, self.has_begun) = (false, true),
            LockEvent::HoldersSynced => self.is_current = true,
            _ => {}
        }
        lines
    }

    fn lines(&self, event: &LockEvent, position: &Snapshot) -> Vec<String> {
        let objects = |objects: Vec<Json>| objects.iter().map(Json::to_string).collect();
        match event {
            LockEvent::Moved(moved) if self.json => {
                objects(moved.moves.iter().map(|one| move_json(one, moved.dc, moved.seq, position)).collect())
            }
            LockEvent::Moved(moved) => {
                moved.moves.iter().map(|one| move_line(one, moved.dc, &self.names)).collect()
            }
            LockEvent::Granted(holding) if self.json => objects(holder_json("granted", holding)),
            LockEvent::Released(holding) if self.json => objects(holder_json("released", holding)),
            LockEvent::Granted(holding) => {
                holder_lines(if self.is_current { "granted" } else { "held" }, holding)
            }
            LockEvent::Released(holding) => holder_lines("released", holding),
            LockEvent::HoldersReset if self.json => vec![json!({ "event": "holders_reset" }).to_string()],
            LockEvent::HoldersSynced if self.json => vec![json!({ "event": "holders_synced" }).to_string()],
            LockEvent::HoldersReset if self.has_begun => vec!["reset".into()],
            LockEvent::Progress if self.progress => vec![show::progress(position, self.json)],
            _ => Vec::new(),
        }
    }
}

fn move_line(LockMove { lock, parts, to }: &LockMove, from: DcId, names: &DcNames) -> String {
    let to = names.show(to.get().into());
    let parts = if parts.len() == 1 { "1 part".into() } else { format!("{} parts", parts.len()) };
    format!("moved {lock} to {to}: {parts} from {}", names.show(from.get().into()))
}

fn move_json(LockMove { lock, parts, to }: &LockMove, from: DcId, seq: u64, position: &Snapshot) -> Json {
    let mut object = Map::new();
    object.insert("event".into(), "moved".into());
    insert_lock_name(&mut object, lock.as_bytes(), lock.home_field());
    object.insert("parts".into(), parts.iter().map(|part| Json::from(part.get())).collect());
    object.extend([("from".to_owned(), json!(from.get())), ("to".to_owned(), json!(to.get()))]);
    object.insert("seq".into(), seq.into());
    object.insert("snapshot".into(), show::snapshot(position).into());
    Json::Object(object)
}

fn holder_lines(what: &str, holding: &Holding) -> Vec<String> {
    let Holding { token, label, locks, .. } = holding;
    let label = describe::label(label);
    let line = |(lock, how): &(LockName, Mode)| format!("{what} {lock} {how} by {label} token {token}");
    locks.iter().map(line).collect()
}

fn holder_json(what: &str, holding: &Holding) -> Vec<Json> {
    let object = |(lock, how): &(LockName, Mode)| {
        let mut object = Map::new();
        object.insert("event".into(), what.into());
        insert_lock_name(&mut object, lock.as_bytes(), lock.home_field());
        object.insert("mode".into(), how.to_string().into());
        object.insert("request".into(), holding.request.to_string().into());
        object.insert("token".into(), number(holding.token.0));
        object.insert("label".into(), holding.label.as_str().into());
        Json::Object(object)
    };
    holding.locks.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::{FencingToken, RequestId};
    use geolock_client::Moved;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("few datacenters")
    }

    fn screen(json: bool) -> Screen {
        Screen { names: DcNames::default(), is_current: false, has_begun: false, progress: true, json }
    }

    fn events() -> [LockEvent; 8] {
        let lock = |name: &[u8]| LockName::new(name).expect("valid");
        let holding = Holding {
            request: RequestId { dc: dc(0), n: 4 },
            token: FencingToken(7),
            label: "me\n".into(),
            locks: vec![(lock(b"a"), Mode::Exclusive), (lock(b"\xff"), Mode::Shared)],
        };
        let moves = vec![
            LockMove { lock: lock(b"a"), parts: vec![dc(0), dc(2)], to: dc(1) },
            LockMove { lock: lock(b"b"), parts: vec![dc(1)], to: dc(1) },
        ];
        [
            LockEvent::HoldersReset,
            LockEvent::Granted(holding.clone()),
            LockEvent::HoldersSynced,
            LockEvent::Granted(holding.clone()),
            LockEvent::Released(holding),
            LockEvent::Moved(Moved { dc: dc(0), seq: 9, moves }),
            LockEvent::HoldersReset,
            LockEvent::Progress,
        ]
    }

    fn shown(mut screen: Screen) -> Vec<String> {
        let position = Snapshot { seqs: vec![9, 3] };
        events().iter().flat_map(|event| screen.see(event, &position)).collect()
    }

    #[test]
    fn people_see_a_line_for_each_lock() {
        let expected = [
            r"held a exclusive by me\n token 7",
            r"held \xff shared by me\n token 7",
            r"granted a exclusive by me\n token 7",
            r"granted \xff shared by me\n token 7",
            r"released a exclusive by me\n token 7",
            r"released \xff shared by me\n token 7",
            "moved a to dc1: 2 parts from dc0",
            "moved b to dc1: 1 part from dc0",
            "reset",
            "progress 9,3",
        ];
        assert_eq!(shown(screen(false)), expected);
    }

    #[test]
    fn programs_get_all_there_is() {
        let lines = shown(screen(true));
        assert_eq!(
            (lines.len(), &lines[0][..], &lines[3][..]),
            (12, r#"{"event":"holders_reset"}"#, r#"{"event":"holders_synced"}"#)
        );
        assert_eq!(
            lines[5],
            r#"{"event":"granted","label":"me\n","mode":"shared","name_base64":"/w==","request":"dc0#4","token":7}"#
        );
        assert_eq!(
            lines[8],
            r#"{"event":"moved","from":0,"name":"a","parts":[0,2],"seq":9,"snapshot":"9,3","to":1}"#
        );
        assert_eq!(lines[11], r#"{"event":"progress","snapshot":"9,3"}"#);
    }
}
