//! The ledger, as the driver uses it: a task that reads its blocks, and one that submits transactions.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Warning;
use super::application::Ledger;
use super::driver::Input;
use crate::retry::PAUSE;
use crate::sequencer_state::Transaction;

/// Passes all blocks above a height on, until the driver has gone.
pub(super) async fn follow<L: Ledger>(ledger: Arc<L>, above: u64, inputs: mpsc::Sender<Input>) {
    let mut above = above;
    loop {
        let blocks = tokio::select! {
            blocks = ledger.blocks(above) => blocks,
            () = inputs.closed() => return,
        };
        let pauses = match blocks {
            Ok(blocks) => {
                let is_empty = blocks.is_empty();
                for block in blocks {
                    above = above.max(block.height);
                    if inputs.send(Input::Block(block)).await.is_err() {
                        return;
                    }
                }
                is_empty
            }
            Err(error) => {
                let warning = Input::Warning(Warning::Ledger(error.to_string()));
                if inputs.send(warning).await.is_err() {
                    return;
                }
                true
            }
        };
        if pauses {
            sleep(PAUSE).await;
        }
    }
}

/// Submits transactions in order. One that fails is submitted again by the machine.
pub(super) async fn submit<L: Ledger>(
    ledger: Arc<L>,
    mut transactions: mpsc::Receiver<Transaction>,
    inputs: mpsc::WeakSender<Input>,
) {
    while let Some(transaction) = transactions.recv().await {
        let Err(error) = ledger.submit(&transaction).await else { continue };
        let Some(inputs) = inputs.upgrade() else { return };
        // If there is no room, the driver has other worries.
        let _ = inputs.try_send(Input::Warning(Warning::Ledger(error.to_string())));
    }
}
