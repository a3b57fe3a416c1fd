//! The server that joins: asks a member until a decision names it, and remembers that. Then it starts like
//! any member, and gets its state from the others.
//!
//! Before its admission a directory has nothing but a random id, so a server that is refused, or stopped
//! while it waits, can be started again in any way. A request may be repeated: a server that is a member
//! already gets the same answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

pub use super::joined_file::Joined;
use super::joined_file::{self, JoinedFileError};
use super::wire::{Applicant, JoinAnswer, JoinRequest};
use crate::base::wire;
use crate::control::{ControlFile, MemberId, StoreError};
use crate::interdc::{JoinCallError, MAX_JOIN_REQUEST, ask_to_join};
use crate::membership::{Address, Credentials as Statement, MemberName, ServerId};
use crate::pki::Credentials;
use crate::runtime::tasks::joined;
use geolock_api::names::{ClusterId, DcId};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How often in a row a member may fail to answer that has not answered yet: it may be busy, or starting.
const FAILURES: u32 = 3;
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(500);

/// A server that is to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The members to ask, one after the other: `host:port` of their QUIC listeners. At least one.
    pub members: Vec<String>,
    /// Asks until one answers: no caller waits for the server to end with a reason.
    pub is_patient: bool,
    /// It is to be a witness, and no member.
    pub is_witness: bool,
    /// It has no access rules, and may not join members that have some.
    pub without_rules: bool,
    pub cluster: String,
    pub dc: DcId,
    pub name: MemberName,
    /// The address at which the other members reach this server.
    pub address: Address,
    pub data_dir: PathBuf,
    /// The highest version of the protocol that it speaks.
    pub version: u16,
}

/// The reason why a server does not join. Unless the text says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(
        "{} has data of another server: a server joins with an empty data directory; without --join, this one starts \
         as the member that it is. If that member was evicted or has left, move the directory away: what it had that \
         no other member has is only there",
        .0.display()
    )]
    NotEmpty(PathBuf),
    #[error(transparent)]
    Call(#[from] JoinCallError),
    #[error("this server cannot join: {0}")]
    Refused(String),
    #[error("the answer of {member} cannot be read ({reason}): both must run this release or a later one")]
    Answer { member: String, reason: String },
    #[error(
        "{member} has admitted this server as {found}, its certificate is for {dc}: this is a bug, report it"
    )]
    OtherSlot { member: String, found: String, dc: DcId },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] JoinedFileError),
}

/// Asks until this server is admitted. Returns the member that it is, and its control group's file, which
/// names its directory.
pub async fn join(options: JoinOptions, tls: &Credentials) -> Result<(Joined, ControlFile), JoinError> {
    let (file, server) = {
        let (dir, dc) = (options.data_dir.clone(), options.dc);
        joined(spawn_blocking(move || identify(&dir, dc)).await)?
    };
    let JoinOptions { members, is_patient, is_witness, cluster, dc, data_dir, .. } = options.clone();
    let mut to_ask = members.iter().cycle();
    let mut member = to_ask.next().expect("there is a member to ask");
    let request = wire::encode("join request", &request(options, server));
    let request = request.expect("its texts are limited");
    debug_assert!(request.len() <= MAX_JOIN_REQUEST, "a name and an address");
    let (mut told, mut failures, mut has_answered) = (None, 0, false);
    let admitted = loop {
        let answer = match ask_to_join(tls, member, &request, LIMIT).await {
            Ok(answer) => answer,
            // One that has answered is there: it may have been restarted.
            Err(error) if is_patient || has_answered || failures + 1 < FAILURES => {
                failures += 1;
                tell(&mut told, "no answer yet", error.to_string());
                member = to_ask.next().expect("there is a member to ask");
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        has_answered = true;
        let answer = wire::decode::<JoinAnswer>("join answer", &answer);
        match answer
            .map_err(|error| JoinError::Answer { member: member.to_owned(), reason: error.to_string() })?
        {
            JoinAnswer::Admitted(admitted) => break admitted,
            JoinAnswer::Refused(why) => return Err(JoinError::Refused(why)),
            JoinAnswer::End(_) => {
                return Err(JoinError::Answer {
                    member: member.to_owned(),
                    reason: "it answers another request".into(),
                });
            }
            JoinAnswer::Wait(why) => tell(&mut told, "waiting", why),
        }
        sleep(PAUSE).await;
    };
    let now = Joined::new(&cluster, (dc, is_witness), server, admitted);
    if !is_witness && !now.members.iter().any(|(member, ..)| *member == dc) {
        let found = now.members.iter().map(|(member, ..)| member.to_string()).collect::<Vec<_>>().join(", ");
        return Err(JoinError::OtherSlot { member: member.to_owned(), found, dc });
    }
    let saved = now.clone();
    let file = joined(
        spawn_blocking(move || {
            joined_file::write(&data_dir, &saved)?;
            let me = MemberId { dc: saved.dc, generation: saved.generation.0 };
            file.of_member(me).map_err(JoinError::from)
        })
        .await,
    )?;
    tracing::info!(%dc, members = now.members.len(), "admitted: this server is {}", if is_witness { "a witness" } else { "a member, and gets its state" });
    Ok((now, file))
}

fn request(options: JoinOptions, server: ServerId) -> JoinRequest {
    let JoinOptions { is_witness, without_rules, cluster, name, address, version, .. } = options;
    let credentials = Statement { cluster: ClusterId::of(&cluster), lineage: None, version };
    let applicant = Applicant { server, name, address, credentials };
    match (is_witness, without_rules) {
        (true, _) => JoinRequest::Witness(applicant),
        (false, true) => JoinRequest::WithoutRules(applicant),
        (false, false) => JoinRequest::V1(applicant),
    }
}

fn tell(told: &mut Option<String>, state: &str, why: String) {
    if told.as_ref() != Some(&why) {
        tracing::info!(why, "asked to join: {state}");
        *told = Some(why);
    }
}

/// Makes the directory's id, or reads it.
fn identify(dir: &Path, dc: DcId) -> Result<(ControlFile, ServerId), JoinError> {
    if crate::journal::is_begun(dir) {
        return Err(JoinError::NotEmpty(dir.to_owned()));
    }
    let file = ControlFile::open(dir, MemberId { dc, generation: 0 })?;
    let server = ServerId(file.server_id().to_bytes());
    Ok((file, server))
}
