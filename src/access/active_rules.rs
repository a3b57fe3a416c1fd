//! The rules in force, and a caller under them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::SystemTime;

use rustc_hash::FxHashMap;

use super::action::Action;
use super::error::AccessError;
use super::principal::Principal;
use super::refused::{Figures, Refused, Resource};
use super::refused_operators::{RefusedOperator, RefusedOperators};
use super::rights::Rights;
use super::rules::{self, Rules};
use super::tokens::{self, PresentedToken, Tokens};
use crate::base::access_digests::AccessDigests;

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most callers with cached rights. Beyond it the cache starts over: rights can be computed again.
const MAX_CACHED_RIGHTS: usize = 10_000;

/// The files of access rules and tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFiles {
    /// File of rules. Default none: every caller that is admitted may do everything.
    pub acl: Option<PathBuf>,
    /// File of tokens. Default none: only certificates are accepted.
    pub tokens: Option<PathBuf>,
    /// Callers without certificate and token are admitted. Default no.
    pub anonymous: bool,
}

/// The rules in force, see the head of `mod.rs`.
#[derive(Debug)]
pub struct Access {
    files: AccessFiles,
    policy: RwLock<Arc<Policy>>,
    /// The generation of `policy`: how often the files were read; written after it.
    generation: AtomicU64,
    figures: Arc<Figures>,
    refused_operators: RefusedOperators,
}

/// The content of the files when they were read.
#[derive(Debug, Default)]
struct Policy {
    rules: Option<Rules>,
    tokens: Option<Tokens>,
    cached_rights: Mutex<FxHashMap<Principal, Arc<Rights>>>,
}

impl Access {
    /// Reads the files.
    pub fn open(files: AccessFiles) -> Result<Access, AccessError> {
        let policy = RwLock::new(Arc::new(Policy::read(&files)?));
        Ok(Access {
            files,
            policy,
            generation: AtomicU64::new(0),
            figures: Arc::default(),
            refused_operators: RefusedOperators::default(),
        })
    }

    /// Reads the files again: from now on they decide about every call. After an error nothing has changed.
    pub fn reload(&self) -> Result<(), AccessError> {
        match Policy::read(&self.files) {
            Ok(policy) => {
                let rules = policy.rules.as_ref().map_or(0, Rules::count);
                let tokens = policy.tokens.as_ref().map_or(0, Tokens::count);
                *self.policy.write().expect("nothing panics while it holds the policy") = Arc::new(policy);
                self.generation.fetch_add(1, Ordering::Release);
                self.figures.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(rules, tokens, "access rules read");
                Ok(())
            }
            Err(error) => {
                self.figures.reloads_failed.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Returns the digests of the rules and of the tokens in force.
    pub fn digests(&self) -> AccessDigests {
        let policy = Arc::clone(&self.policy.read().expect("nothing panics while it holds the policy"));
        let (rules, tokens) = (policy.rules.as_ref(), policy.tokens.as_ref());
        AccessDigests { rules: rules.map(Rules::digest), tokens: tokens.map(Tokens::digest) }
    }

    /// Returns true if there is a file to read again.
    pub fn has_files(&self) -> bool {
        self.files.acl.is_some() || self.files.tokens.is_some()
    }

    /// Returns true if a client without a certificate can be admitted.
    pub fn takes_strangers(&self) -> bool {
        self.files.tokens.is_some() || self.files.anonymous
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Returns the refused calls of operators since the start of the process, the latest last, and how many
    /// were displaced by others.
    pub fn refused_operators(&self) -> (Vec<RefusedOperator>, u64) {
        self.refused_operators.list()
    }

    /// Notes that an operator's call was refused because its caller is not identified.
    pub fn note_unknown_operator(&self, call: &'static str, refused: &Refused, from: SocketAddr) {
        self.refused_operators.note(call, refused, from, SystemTime::now());
    }

    /// Identifies a caller. A token overrides a certificate, because it is presented with the call.
    ///
    /// `certificate`: the client's name in it. `authorization`: the value of that header of the call.
    pub fn admit(
        self: &Arc<Access>,
        from: SocketAddr,
        certificate: Option<&Arc<str>>,
        authorization: Option<&[u8]>,
    ) -> Result<Authorizer, Refused> {
        let admitted = self.read_call(certificate, authorization).and_then(|credentials| {
            let (generation, caller) = self.identify(&credentials)?;
            Ok(Authorizer { access: Arc::clone(self), from, credentials, generation, caller })
        });
        admitted.inspect_err(|refused| self.figures.note(refused, from))
    }

    fn read_call(
        &self,
        certificate: Option<&Arc<str>>,
        authorization: Option<&[u8]>,
    ) -> Result<Credentials, Refused> {
        match (authorization, certificate) {
            (Some(_), _) if self.files.tokens.is_none() => Err(Refused::TokensNotTaken),
            (Some(value), _) => {
                let token = std::str::from_utf8(value).ok().and_then(bearer).and_then(PresentedToken::read);
                token.map(Credentials::Token).ok_or(Refused::NoToken)
            }
            (None, Some(name)) => Ok(Credentials::Certificate(Arc::clone(name))),
            (None, None) if self.files.anonymous => Ok(Credentials::Nothing),
            (None, None) => Err(Refused::Nobody),
        }
    }

    /// Returns the caller under the rules in force, and their generation. The generation may be older than
    /// that of the rules; then the rules are looked up again at the next call.
    fn identify(&self, credentials: &Credentials) -> Result<(u64, Caller), Refused> {
        let generation = self.generation.load(Ordering::Acquire);
        let policy = Arc::clone(&self.policy.read().expect("nothing panics while it holds the policy"));
        let principal = match credentials {
            Credentials::Certificate(name) => Principal::Client(Arc::clone(name)),
            Credentials::Nothing => Principal::Anonymous,
            Credentials::Token(token) if policy.tokens.as_ref().is_some_and(|known| known.has(token)) => {
                Principal::Token(Arc::clone(&token.name))
            }
            Credentials::Token(token) => return Err(Refused::UnknownToken(token.name.to_string())),
        };
        let rights = policy.rights(&principal);
        Ok((generation, Caller { principal, rights }))
    }
}

/// Returns the token of an `authorization`. The scheme is case-insensitive.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl Policy {
    fn read(files: &AccessFiles) -> Result<Policy, AccessError> {
        let rules = files.acl.as_deref().map(|path| Rules::parse(path, &text(rules::KEY, path)?));
        let tokens = files.tokens.as_deref().map(|path| Tokens::parse(path, &text(tokens::KEY, path)?));
        Ok(Policy { rules: rules.transpose()?, tokens: tokens.transpose()?, cached_rights: Mutex::default() })
    }

    /// `None`: everything is allowed.
    fn rights(&self, principal: &Principal) -> Option<Arc<Rights>> {
        let rules = self.rules.as_ref()?;
        let mut cached_rights = self.cached_rights.lock().expect("nothing panics while it holds the rights");
        if let Some(rights) = cached_rights.get(principal) {
            return Some(Arc::clone(rights));
        }
        let rights = Arc::new(rules.rights(principal));
        if cached_rights.len() >= MAX_CACHED_RIGHTS {
            cached_rights.clear();
        }
        cached_rights.insert(principal.clone(), Arc::clone(&rights));
        Some(rights)
    }
}

fn text(key: &'static str, path: &Path) -> Result<String, AccessError> {
    let failed = |source| AccessError::Read { key, path: path.into(), source };
    let found = fs::metadata(path).map_err(failed)?;
    match found.len() {
        // Reading a named pipe would block until another process writes to it.
        _ if !found.is_file() && !found.is_dir() => {
            Err(AccessError::File { key, path: path.into(), what: "it is no regular file".into() })
        }
        0..=MAX_FILE => fs::read_to_string(path).map_err(failed),
        bytes => {
            let what = format!("it has {bytes} bytes; at most 1 MiB");
            Err(AccessError::File { key, path: path.into(), what })
        }
    }
}

/// The credentials that a caller presented, to be judged again when the rules change.
#[derive(Clone, Debug)]
enum Credentials {
    Certificate(Arc<str>),
    Token(PresentedToken),
    Nothing,
}

#[derive(Clone, Debug)]
struct Caller {
    principal: Principal,
    /// `None`: everything is allowed.
    rights: Option<Arc<Rights>>,
}

/// One caller, for one call or for a whole stream. Every refusal is counted and logged here.
#[derive(Clone, Debug)]
pub struct Authorizer {
    access: Arc<Access>,
    from: SocketAddr,
    credentials: Credentials,
    generation: u64,
    caller: Caller,
}

impl Authorizer {
    pub fn principal(&self) -> &Principal {
        &self.caller.principal
    }

    /// Returns the address of its connection.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Returns true if the rules have changed since the last [`Authorizer::renew`].
    pub fn is_outdated(&self) -> bool {
        self.access.generation.load(Ordering::Acquire) != self.generation
    }

    /// Applies the rules in force from now on. Cheap when they have not changed. Refuses a caller whose token
    /// was withdrawn.
    pub fn renew(&mut self) -> Result<(), Refused> {
        if self.is_outdated() {
            let caller = self.access.identify(&self.credentials);
            (self.generation, self.caller) = caller.inspect_err(|refused| self.note(refused))?;
        }
        Ok(())
    }

    /// Returns true if there are no rules at all.
    pub fn allows_everything(&self) -> bool {
        self.caller.rights.is_none()
    }

    pub fn check(&self, action: Action, resource: Resource<'_>) -> Result<(), Refused> {
        match &self.caller.rights {
            Some(rights) if !rights.allows(action, resource.name()) => {
                let principal = self.caller.principal.clone();
                let refused = Refused::Denied { principal, action, resource: resource.to_string() };
                self.note(&refused);
                Err(refused)
            }
            _ => Ok(()),
        }
    }

    /// The same for a call of an operator; the audit lists the refusal under the name `call`.
    pub fn check_operator(
        &self,
        call: &'static str,
        action: Action,
        resource: Resource<'_>,
    ) -> Result<(), Refused> {
        let note = |refused: &Refused| {
            self.access.refused_operators.note(call, refused, self.from, SystemTime::now());
        };
        self.check(action, resource).inspect_err(note)
    }

    /// Refuses a caller that no rule allows any of these actions, and that therefore cannot use `what`.
    pub fn check_any(&self, actions: &[Action], what: &'static str) -> Result<(), Refused> {
        match &self.caller.rights {
            Some(rights) if !rights.allows_any(actions) => {
                let refused = Refused::NothingToDo { principal: self.caller.principal.clone(), what };
                self.note(&refused);
                Err(refused)
            }
            _ => Ok(()),
        }
    }

    fn note(&self, refused: &Refused) {
        self.access.figures.note(refused, self.from);
    }
}
