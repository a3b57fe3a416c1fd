//! A contract with coins: each intent spends one, and makes another one.

use std::hash::{BuildHasher as _, RandomState};

use geolock_recipes::sequencer::sqlite::SimLedger;
use geolock_recipes::sequencer::{
    Assembly, Domain, Intent, Node, NotAssembled, Speculation, StateId, Threshold,
};

/// The members of the contract, and the datacenter of each.
pub const MEMBERS: [(&str, u8); 4] = [("a", 0), ("b", 1), ("c", 2), ("d", 0)];

pub struct Coins {
    pub ledger: SimLedger,
    pub threshold: Threshold,
}

impl Domain for Coins {
    fn committee(&self) -> Vec<Node> {
        MEMBERS.iter().map(|(name, _)| Node::new(name)).collect()
    }

    fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Takes the first coin that nobody spends: of the confirmed ones, and of those that are on their way.
    async fn assemble(&self, intent: &Intent, speculation: &Speculation) -> Result<Assembly, NotAssembled> {
        if intent.content == "invalid" {
            return Err(NotAssembled::Invalid("it makes no sense".to_owned()));
        }
        let unspent = self.ledger.unspent().await.map_err(|_| NotAssembled::Parked)?;
        let mut coins = unspent.iter().chain(&speculation.created);
        let coin = coins.find(|coin| !speculation.spent.contains(*coin)).ok_or(NotAssembled::Parked)?;
        // A coin of its own for each attempt: an earlier one may still be on its way.
        let number = RandomState::new().hash_one(coin.as_str());
        let made = StateId::new(&format!("{}-{}-{number:x}", intent.id.sender, intent.id.name));
        Ok(Assembly {
            intent: intent.id.clone(),
            inputs: vec![coin.clone()],
            outputs: vec![made],
            payload: intent.content.clone(),
        })
    }

    async fn endorse(&self, assembly: &Assembly) -> Result<(), String> {
        match assembly.inputs.len() == 1 && assembly.outputs.len() == 1 {
            true => Ok(()),
            false => Err("one coin is spent for each that is made".to_owned()),
        }
    }
}
