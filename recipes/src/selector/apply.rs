//! A transaction of the ledger, as a source of tokens applies it: inputs out, outputs in.

use std::collections::{BTreeMap, BTreeSet};

use super::source::SourceError;
use crate::hash::Hasher;
use crate::selector_state::{MAX_AMOUNT, Pool, Token, TokenError, TokenId};

/// The reason why a source did not apply a transaction.
///
/// Nothing was changed, except perhaps by [`ApplyError::Source`]: if the answer of the database was lost, the
/// transaction may be applied. Apply it again, under the same id.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An input is not there.
    #[error(
        "token {id} is not an unspent token of this pool: another transaction has spent it; select again"
    )]
    Spent {
        /// The input.
        id: TokenId,
    },
    /// Another transaction has spent the input under a later grant of its lock.
    #[error(
        "token {id} was spent under fencing token {known}, and this transaction has the older {fence}: its \
         replica had lost the token; select again"
    )]
    Fenced {
        /// The input.
        id: TokenId,
        /// The fencing token of this transaction.
        fence: u64,
        /// The highest one that the source has seen for the input.
        known: u64,
    },
    /// A transaction of this id with other inputs or outputs was applied.
    #[error(
        "transaction {tx} was applied with other inputs or outputs: give each transaction an id of its own, and \
         apply it again as it was"
    )]
    OtherContent {
        /// The id of the transaction, as text.
        tx: String,
    },
    /// The id of an output is that of another token.
    #[error("token {id} exists already: give each output an id that was never used")]
    Exists {
        /// The output.
        id: TokenId,
    },
    /// An output cannot be.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The database failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A transaction that a source is asked to apply.
pub(super) struct Transaction<'a> {
    pub(super) id: &'a [u8],
    pub(super) pool: &'a Pool,
    pub(super) inputs: &'a [TokenId],
    pub(super) fence: u64,
    pub(super) outputs: &'a [(Pool, Token)],
}

impl Transaction<'_> {
    /// Returns a hash of everything but the id and the fence: a transaction that is applied again is the
    /// same.
    pub(super) fn content(&self) -> [u8; 16] {
        let pool = |hash: Hasher, Pool { wallet, currency }: &Pool| {
            hash.field(wallet.as_bytes()).field(currency.as_bytes())
        };
        let head = pool(Hasher::new("applied"), self.pool).number(self.inputs.len() as u64);
        let inputs = self.inputs.iter().fold(head, |hash, id| hash.field(id.as_bytes()));
        let all = self.outputs.iter().fold(inputs, |hash, (of, token)| {
            // No datacenter has the number 255.
            let home = token.home.map_or(u64::from(u8::MAX), |home| home.get().into());
            pool(hash, of).field(token.id.as_bytes()).number(token.amount).number(home)
        });
        all.finish().to_be_bytes()
    }

    pub(super) fn other_content(&self) -> ApplyError {
        ApplyError::OtherContent { tx: self.id.escape_ascii().to_string() }
    }

    /// Checks what needs no database.
    pub(super) fn check(&self) -> Result<(), ApplyError> {
        let mut ids = BTreeSet::new();
        for id in self.inputs {
            // The first mention of an input spends it.
            if !ids.insert(id) {
                return Err(ApplyError::Spent { id: id.clone() });
            }
        }
        for (_, token) in self.outputs {
            check_amount(token)?;
            if !ids.insert(&token.id) {
                return Err(ApplyError::Exists { id: token.id.clone() });
            }
        }
        Ok(())
    }

    /// Decides, with what the database knows of the inputs. That must not change before the transaction is
    /// applied.
    pub(super) fn decide(
        &self,
        unspent: &BTreeSet<TokenId>,
        fences: &BTreeMap<TokenId, u64>,
    ) -> Result<(), ApplyError> {
        // An input that a later holder has spent is both. That the replica was late explains more.
        for id in self.inputs {
            if let Some(&known) = fences.get(id)
                && self.fence < known
            {
                return Err(ApplyError::Fenced { id: id.clone(), fence: self.fence, known });
            }
        }
        match self.inputs.iter().find(|&id| !unspent.contains(id)) {
            Some(id) => Err(ApplyError::Spent { id: id.clone() }),
            None => Ok(()),
        }
    }
}

/// Checks the amount of a token that is to be inserted.
pub(super) fn check_amount(token: &Token) -> Result<(), TokenError> {
    match token.amount {
        1..=MAX_AMOUNT => Ok(()),
        amount => Err(TokenError::Amount { id: token.id.clone(), amount }),
    }
}
