//! The rules of this moment, and a caller under them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use rustc_hash::FxHashMap;

use super::action::Action;
use super::error::AccessError;
use super::refused::{Figures, Refused, What};
use super::rights::Rights;
use super::rules::{self, Rules};
use super::tokens::{self, ShownToken, Tokens};
use super::who::Who;

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Callers whose rights are remembered. Beyond, it starts over: they can be worked out again.
const MAX_REMEMBERED: usize = 10_000;

/// Where a server learns who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFiles {
    /// File of rules. Default none: everybody who is let in may do everything.
    pub acl: Option<PathBuf>,
    /// File of tokens. Default none: only certificates are taken.
    pub tokens: Option<PathBuf>,
    /// Whether callers that show neither certificate nor token are let in. Default no.
    pub anonymous: bool,
}

/// See the top of `mod.rs`.
#[derive(Debug)]
pub struct Access {
    files: AccessFiles,
    policy: RwLock<Arc<Policy>>,
    /// Which reading of the files `policy` is; written after it.
    reading: AtomicU64,
    figures: Arc<Figures>,
}

/// What the files said when they were read.
#[derive(Debug, Default)]
struct Policy {
    rules: Option<Rules>,
    tokens: Option<Tokens>,
    remembered: Mutex<FxHashMap<Who, Arc<Rights>>>,
}

impl Access {
    /// Reads the files.
    pub fn open(files: AccessFiles) -> Result<Access, AccessError> {
        let policy = RwLock::new(Arc::new(Policy::read(&files)?));
        Ok(Access { files, policy, reading: AtomicU64::new(0), figures: Arc::default() })
    }

    /// Reads the files anew: from now on every call is judged by what they say. After an error nothing has changed.
    pub fn reload(&self) -> Result<(), AccessError> {
        match Policy::read(&self.files) {
            Ok(policy) => {
                let rules = policy.rules.as_ref().map_or(0, Rules::count);
                let tokens = policy.tokens.as_ref().map_or(0, Tokens::count);
                *self.policy.write().expect("nothing panics while it holds the policy") = Arc::new(policy);
                self.reading.fetch_add(1, Ordering::Release);
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

    /// Whether there is anything to read anew.
    pub fn has_files(&self) -> bool {
        self.files.acl.is_some() || self.files.tokens.is_some()
    }

    /// Whether a connection without a certificate can come to anything.
    pub fn takes_strangers(&self) -> bool {
        self.files.tokens.is_some() || self.files.anonymous
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Finds out who calls. A token counts more than a certificate: it is shown with the call.
    ///
    /// `certificate`: the client's name in it. `authorization`: what the call carries under that name.
    pub fn admit(
        self: &Arc<Access>,
        from: SocketAddr,
        certificate: Option<&Arc<str>>,
        authorization: Option<&[u8]>,
    ) -> Result<Judge, Refused> {
        let admitted = self.read_call(certificate, authorization).and_then(|shown| {
            let (reading, view) = self.view(&shown)?;
            Ok(Judge { access: Arc::clone(self), from, shown, reading, view })
        });
        admitted.inspect_err(|refused| self.figures.note(refused, from))
    }

    fn read_call(
        &self,
        certificate: Option<&Arc<str>>,
        authorization: Option<&[u8]>,
    ) -> Result<Shown, Refused> {
        match (authorization, certificate) {
            (Some(_), _) if self.files.tokens.is_none() => Err(Refused::TokensNotTaken),
            (Some(value), _) => {
                let token = std::str::from_utf8(value).ok().and_then(bearer).and_then(ShownToken::read);
                token.map(Shown::Token).ok_or(Refused::NoToken)
            }
            (None, Some(name)) => Ok(Shown::Certificate(Arc::clone(name))),
            (None, None) if self.files.anonymous => Ok(Shown::Nothing),
            (None, None) => Err(Refused::Nobody),
        }
    }

    /// The caller under the rules of this moment, and which reading they are of: perhaps an older one than they really
    /// are of, then they are looked up again at the next call.
    fn view(&self, shown: &Shown) -> Result<(u64, View), Refused> {
        let reading = self.reading.load(Ordering::Acquire);
        let policy = Arc::clone(&self.policy.read().expect("nothing panics while it holds the policy"));
        let who = match shown {
            Shown::Certificate(name) => Who::Client(Arc::clone(name)),
            Shown::Nothing => Who::Anonymous,
            Shown::Token(token) if policy.tokens.as_ref().is_some_and(|known| known.has(token)) => {
                Who::Token(Arc::clone(&token.name))
            }
            Shown::Token(token) => return Err(Refused::UnknownToken(token.name.to_string())),
        };
        let rights = policy.rights(&who);
        Ok((reading, View { who, rights }))
    }
}

/// The token of an `authorization`. The scheme may be in any case.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl Policy {
    fn read(files: &AccessFiles) -> Result<Policy, AccessError> {
        let rules = files.acl.as_deref().map(|path| Rules::parse(path, &text(rules::KEY, path)?));
        let tokens = files.tokens.as_deref().map(|path| Tokens::parse(path, &text(tokens::KEY, path)?));
        Ok(Policy { rules: rules.transpose()?, tokens: tokens.transpose()?, remembered: Mutex::default() })
    }

    /// `None`: everything.
    fn rights(&self, who: &Who) -> Option<Arc<Rights>> {
        let rules = self.rules.as_ref()?;
        let mut remembered = self.remembered.lock().expect("nothing panics while it holds the rights");
        if let Some(rights) = remembered.get(who) {
            return Some(Arc::clone(rights));
        }
        let rights = Arc::new(rules.rights(who));
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(who.clone(), Arc::clone(&rights));
        Some(rights)
    }
}

fn text(key: &'static str, path: &Path) -> Result<String, AccessError> {
    let failed = |source| AccessError::Read { key, path: path.into(), source };
    let found = fs::metadata(path).map_err(failed)?;
    match found.len() {
        // A named pipe would keep its reader until somebody writes.
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

/// What a caller showed, to be looked at again under other rules.
#[derive(Clone, Debug)]
enum Shown {
    Certificate(Arc<str>),
    Token(ShownToken),
    Nothing,
}

#[derive(Clone, Debug)]
struct View {
    who: Who,
    /// `None`: everything.
    rights: Option<Arc<Rights>>,
}

/// One caller, for one call or for a whole stream. Every refusal is counted and logged here.
#[derive(Clone, Debug)]
pub struct Judge {
    access: Arc<Access>,
    from: SocketAddr,
    shown: Shown,
    reading: u64,
    view: View,
}

impl Judge {
    pub fn who(&self) -> &Who {
        &self.view.who
    }

    /// Where its connection comes from.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Whether the rules are other ones than at the last [`Judge::renew`].
    pub fn is_outdated(&self) -> bool {
        self.access.reading.load(Ordering::Acquire) != self.reading
    }

    /// From now on by the rules of this moment. Cheap when they are the same. Refuses who showed a token that was
    /// withdrawn.
    pub fn renew(&mut self) -> Result<(), Refused> {
        if self.is_outdated() {
            let view = self.access.view(&self.shown);
            (self.reading, self.view) = view.inspect_err(|refused| self.note(refused))?;
        }
        Ok(())
    }

    /// Whether there are no rules at all.
    pub fn allows_everything(&self) -> bool {
        self.view.rights.is_none()
    }

    pub fn check(&self, action: Action, what: What<'_>) -> Result<(), Refused> {
        match &self.view.rights {
            Some(rights) if !rights.allows(action, what.name()) => {
                let who = self.view.who.clone();
                let refused = Refused::Denied { who, action, what: what.to_string() };
                self.note(&refused);
                Err(refused)
            }
            _ => Ok(()),
        }
    }

    /// Refuses who may do none of these on anything, and so has no use for `what`.
    pub fn check_any(&self, actions: &[Action], what: &'static str) -> Result<(), Refused> {
        match &self.view.rights {
            Some(rights) if !rights.allows_any(actions) => {
                let refused = Refused::NothingToDo { who: self.view.who.clone(), what };
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
