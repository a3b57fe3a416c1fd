//! Edge. Files that a server reads again while it runs: rules and tokens on SIGHUP; certificates also at an
//! interval, so that a renewed one is used long before the old one expires.
//!
//! One task does it all. It checks the files as a whole before it uses any of their content: a file that is
//! broken, partly written or not the server's changes nothing, and is logged once. Certificate files are
//! replaced one after the other, so a mismatch is an error only if it persists at the next check. New content
//! is used for new connections and further calls; no open connection is closed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::interval;

use crate::access::{Access, AccessError};
use crate::base::access_digests::AccessDigests;
use crate::pki::{ClientCertificates, Credentials, PkiError, Role, day, key_that_all_may_read};
use crate::runtime::tasks::joined;
use crate::server::config::{Config, Tls};
use crate::telemetry::{Board, CertificateFigures};

/// A certificate that expires soon is logged again after this time.
const WARN_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
/// Most callers that wait for a reload.
const WAITING: usize = 16;

/// The reason why a file is not used. The previous content stays in use.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{name}: {source}")]
    Certificate { name: &'static str, source: PkiError },
}

/// The reloadable files as loaded and checked at start.
#[derive(Debug)]
pub struct Loaded {
    pub access: Arc<Access>,
    links: Credentials,
    api: Credentials,
}

impl Loaded {
    /// Loads the files. The certificates must belong to the datacenter and cluster of `config`.
    pub fn load(config: &Config) -> Result<Loaded, ReloadError> {
        let access = Arc::new(Access::open(config.access.clone())?);
        if config.access.anonymous && config.access.acl.is_none() {
            tracing::warn!(grpc = %config.listen.client, "anonymous clients and no rules (api.anonymous, no api.acl): whoever reaches \
                this address may do everything");
        }
        let role = Role::Dc(config.replica.dc);
        let load = |name, dir| {
            load(dir, &config.cluster_name, &role).map_err(|source| ReloadError::Certificate { name, source })
        };
        let links = load(LINKS, &config.tls.dc)?;
        let api = load(API, &config.tls.api)?;
        warn_of_open_keys(&config.tls);
        Ok(Loaded { access, links, api })
    }

    /// Returns the values in use, and the task that updates them from the files.
    pub(crate) fn kept(
        self,
        config: &Config,
        board: Arc<Board>,
    ) -> Result<(InUse, Reloader, Keeper), ReloadError> {
        let Loaded { access, links, api } = self;
        let showing = if access.takes_strangers() {
            ClientCertificates::Optional
        } else {
            ClientCertificates::Demanded
        };
        let accept = api.accept_clients(showing);
        let accept = accept.map_err(|source| ReloadError::Certificate { name: API, source })?;
        let (links_use, links_used) = watch::channel(links.clone());
        let (api_use, api_used) = watch::channel(Arc::new(accept));
        let keep = |name, dir: &PathBuf, loaded, uses| Kept {
            name,
            dir: dir.clone(),
            loaded,
            uses,
            suspected: None,
            failure: None,
            warned: None,
        };
        let (orders, taken) = mpsc::channel(WAITING);
        let (digests, told) = watch::channel(access.digests());
        let keeper = Keeper {
            cluster: config.cluster_name.clone(),
            role: Role::Dc(config.replica.dc),
            access: Arc::clone(&access),
            digests,
            certificates: vec![
                keep(LINKS, &config.tls.dc, links, Use::Links(links_use)),
                keep(API, &config.tls.api, api, Use::Api(api_use, showing)),
            ],
            board,
            check_interval: config.tls.check_interval,
            orders: taken,
        };
        Ok((InUse { access, digests: told, links: links_used, api: api_used }, Reloader(orders), keeper))
    }
}

/// Returns the private keys that users besides the owner and the group may read, with their modes.
pub(crate) fn open_keys(tls: &Tls) -> BTreeMap<PathBuf, u32> {
    [&tls.dc, &tls.api].into_iter().filter_map(|dir| key_that_all_may_read(dir)).collect()
}

fn warn_of_open_keys(tls: &Tls) {
    for (key, mode) in open_keys(tls) {
        tracing::warn!(
            key = %key.display(),
            mode = format_args!("{mode:04o}"),
            "every user of this machine may read the private key: chmod 0600 (or 0640), and issue a new certificate"
        );
    }
}

/// The options that name the folders.
const LINKS: &str = "tls.dc";
const API: &str = "tls.api";

fn load(dir: &std::path::Path, cluster: &str, role: &Role) -> Result<Credentials, PkiError> {
    let loaded = Credentials::load(dir)?;
    loaded.require(dir, cluster, role)?;
    Ok(loaded)
}

/// The values in use at each moment.
pub(crate) struct InUse {
    pub access: Arc<Access>,
    /// Of the rules and tokens.
    pub digests: watch::Receiver<AccessDigests>,
    pub links: watch::Receiver<Credentials>,
    pub api: watch::Receiver<Arc<ServerConfig>>,
}

/// Requests a reload of a server's files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reloader(mpsc::Sender<oneshot::Sender<Vec<ReloadError>>>);

impl Reloader {
    /// Reads all files again. Returns the errors of files that could not be used, which are also logged;
    /// empty if the server stops meanwhile.
    pub async fn reload(&self) -> Vec<ReloadError> {
        let (answer, answered) = oneshot::channel();
        if self.0.send(answer).await.is_err() {
            return Vec::new();
        }
        answered.await.unwrap_or_default()
    }
}

/// The task that reads the files again.
pub(crate) struct Keeper {
    cluster: String,
    role: Role,
    access: Arc<Access>,
    digests: watch::Sender<AccessDigests>,
    certificates: Vec<Kept>,
    board: Arc<Board>,
    check_interval: Duration,
    orders: mpsc::Receiver<oneshot::Sender<Vec<ReloadError>>>,
}

/// The reason for a check of the certificates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    ByTime,
    BySomebody,
}

/// A certificate in use.
struct Kept {
    name: &'static str,
    dir: PathBuf,
    loaded: Credentials,
    uses: Use,
    /// The reason why the content of the folder could not be used at the last check.
    suspected: Option<String>,
    /// The same, once it persists; logged once.
    failure: Option<String>,
    /// When its coming expiry was last logged.
    warned: Option<Instant>,
}

/// The user of a certificate.
enum Use {
    Links(watch::Sender<Credentials>),
    Api(watch::Sender<Arc<ServerConfig>>, ClientCertificates),
}

impl Keeper {
    /// Runs until `stop`. If a file is being read then, on a disk that does not respond, that is left to its
    /// thread.
    pub(crate) async fn run(mut self, stop: oneshot::Receiver<()>) {
        tokio::select! {
            _ = stop => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        let mut look = interval(self.check_interval);
        // The first tick is immediate: it publishes how long the certificates are valid.
        loop {
            tokio::select! {
                _ = look.tick() => drop(self.look_at_certificates(Asked::ByTime).await),
                Some(answer) = self.orders.recv() => {
                    let failures = self.reload().await;
                    self.digests.send_replace(self.access.digests());
                    // The caller may be gone.
                    let _ = answer.send(failures);
                }
                else => return,
            }
        }
    }

    async fn reload(&mut self) -> Vec<ReloadError> {
        let mut failures = Vec::new();
        if self.access.has_files() {
            let access = Arc::clone(&self.access);
            if let Err(error) = joined(spawn_blocking(move || access.reload()).await) {
                tracing::error!(%error, "access rules not read: the old ones stay");
                failures.push(error.into());
            }
        }
        failures.extend(self.look_at_certificates(Asked::BySomebody).await);
        failures
    }

    async fn look_at_certificates(&mut self, asked: Asked) -> Vec<ReloadError> {
        let mut failures = Vec::new();
        for kept in &mut self.certificates {
            let (dir, cluster, role) = (kept.dir.clone(), self.cluster.clone(), self.role.clone());
            let found = joined(spawn_blocking(move || load(&dir, &cluster, &role)).await);
            if let Err(source) = found.and_then(|found| kept.take(found)) {
                kept.refuse(&source, asked);
                failures.push(ReloadError::Certificate { name: kept.name, source });
            }
            kept.warn();
        }
        self.board.publish_certificates(self.certificates.iter().map(Kept::figures).collect());
        failures
    }
}

impl Kept {
    /// Uses the found certificate if it differs.
    fn take(&mut self, found: Credentials) -> Result<(), PkiError> {
        if found.is_same_as(&self.loaded) {
            (self.suspected, self.failure) = (None, None);
            return Ok(());
        }
        match &self.uses {
            Use::Links(links) => {
                // The same check as links make, so that an error occurs here.
                found.accept_dcs()?;
                links.send_replace(found.clone());
            }
            Use::Api(api, showing) => {
                api.send_replace(Arc::new(found.accept_clients(*showing)?));
            }
        }
        let (changed, revoked) = (found.differences(&self.loaded), found.revoked());
        if found.shows_same(&self.loaded) {
            let message = "the authorities, or the revoked certificates (crl.pem), are read again";
            tracing::info!(name = self.name, dir = %self.dir.display(), changed, revoked, "{message}");
        } else {
            let until = day(found.expires());
            tracing::info!(name = self.name, dir = %self.dir.display(), until, changed, revoked, "certificate renewed");
        }
        self.loaded = found;
        (self.suspected, self.failure, self.warned) = (None, None, None);
        Ok(())
    }

    fn refuse(&mut self, error: &PkiError, asked: Asked) {
        let said = Some(error.to_string());
        let is_news = match asked {
            Asked::BySomebody => true,
            Asked::ByTime => self.suspected == said && self.failure != said,
        };
        if is_news {
            let until = day(self.loaded.expires());
            tracing::error!(name = self.name, until, %error, "certificate not renewed: the old one stays, and so does the old list of revoked ones");
            self.failure = said.clone();
        }
        self.suspected = said;
    }

    fn warn(&mut self) {
        let again = self.warned.is_none_or(|at| at.elapsed() >= WARN_AGAIN);
        if again && self.loaded.expires_soon(SystemTime::now()) {
            let until = day(self.loaded.expires());
            tracing::warn!(
                name = self.name,
                until,
                dir = %self.dir.display(),
                "certificate expires soon: put a new one into its folder"
            );
            self.warned = Some(Instant::now());
        }
    }

    fn figures(&self) -> CertificateFigures {
        CertificateFigures {
            name: self.name,
            expires: self.loaded.expires(),
            expires_soon: self.loaded.expires_soon(SystemTime::now()),
            failure: self.failure.clone(),
        }
    }
}
