//! The ledger, as the driver uses it: a task that reads its blocks, and one that submits transactions.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Warning;
use super::application::{Block, Ledger};
use super::driver::Input;
use crate::retry::PAUSE;
use crate::sequencer_state::{Event, Transaction};

/// Passes all blocks above a height on, each once and in order, until the driver has gone.
pub(super) async fn follow<L: Ledger>(ledger: Arc<L>, above: u64, inputs: mpsc::Sender<Input>) {
    let mut last = above;
    loop {
        let blocks = tokio::select! {
            blocks = ledger.blocks(last) => blocks,
            () = inputs.closed() => return,
        };
        let before = last;
        let news = match blocks {
            Ok(blocks) => in_order(&mut last, blocks),
            Err(error) => vec![Input::Warning(Warning::Ledger(error.to_string()))],
        };
        for input in news {
            if inputs.send(input).await.is_err() {
                return;
            }
        }
        if last == before {
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = inputs.closed() => return,
            }
        }
    }
}

/// Returns the blocks that follow the last one, and warns of all others. One that is missing is asked for
/// again: it may have confirmed something.
fn in_order(last: &mut u64, blocks: Vec<Block>) -> Vec<Input> {
    let mut news = Vec::new();
    for block in blocks {
        let next = last.saturating_add(1);
        match block.height.cmp(&next) {
            Ordering::Equal => {
                *last = next;
                news.push(Input::Block(block));
            }
            Ordering::Less => {
                news.push(Input::Warning(Warning::LedgerWentBack { from: *last, to: block.height }));
            }
            Ordering::Greater => {
                news.push(Input::Warning(Warning::LedgerGap { after: *last, next: block.height }));
                break;
            }
        }
    }
    news
}

/// Submits transactions in order. The machine hears of one that fails, and submits it again.
pub(super) async fn submit<L: Ledger>(
    ledger: Arc<L>,
    mut transactions: mpsc::Receiver<Transaction>,
    inputs: mpsc::WeakSender<Input>,
) {
    while let Some(transaction) = transactions.recv().await {
        let Err(error) = ledger.submit(&transaction).await else { continue };
        let Some(inputs) = inputs.upgrade() else { return };
        // If there is no room, the driver has other worries, and the machine submits it again some time.
        let _ = inputs.try_send(Input::Event(Event::NotSubmitted { nonce: transaction.nonce }));
        let _ = inputs.try_send(Input::Warning(Warning::Ledger(error.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sequencer_state::{Assembly, Epoch, IntentId, LedgerView, Node};

    fn told(last: &mut u64, heights: &[u64]) -> Vec<String> {
        let blocks = heights.iter().map(|height| Block { height: *height, outcomes: Vec::new() }).collect();
        let news = in_order(last, blocks).into_iter().map(|input| match input {
            Input::Block(block) => block.height.to_string(),
            Input::Warning(warning) => warning.to_string(),
            Input::Event(_) | Input::Failed(_) => "something else".to_owned(),
        });
        news.collect()
    }

    struct Away;

    impl Ledger for Away {
        type Error = &'static str;

        async fn view(&self, _: Vec<IntentId>) -> Result<LedgerView, &'static str> {
            Err("no line")
        }

        async fn submit(&self, _: &Transaction) -> Result<(), &'static str> {
            Err("no line")
        }

        async fn blocks(&self, _: u64) -> Result<Vec<Block>, &'static str> {
            Err("no line")
        }
    }

    #[tokio::test]
    async fn the_machine_hears_which_transaction_the_ledger_did_not_take() {
        let (to_ledger, transactions) = mpsc::channel(1);
        let (inputs, mut news) = mpsc::channel(2);
        let (signer, intent) = (Node::new("a"), IntentId::new(&Node::new("b"), "1"));
        let assembly = Assembly { intent, inputs: Vec::new(), outputs: Vec::new(), payload: Bytes::new() };
        let (hash, epoch) = (assembly.hash(), Epoch(1));
        let transaction = Transaction { assembly, hash, epoch, signer, nonce: 7 };
        to_ledger.send(transaction).await.expect("it is read");
        drop(to_ledger);
        submit(Arc::new(Away), transactions, inputs.downgrade()).await;
        assert!(matches!(news.recv().await, Some(Input::Event(Event::NotSubmitted { nonce: 7 }))));
        let warning = Warning::Ledger("no line".to_owned());
        assert!(matches!(news.recv().await, Some(Input::Warning(told)) if told == warning));
    }

    #[test]
    fn each_block_comes_once_and_none_is_passed_over() {
        let mut last = 5;
        let back = "the ledger has gone back from 6 to 3";
        assert_eq!(told(&mut last, &[6, 3, 7]), ["6", back, "7"]);
        let gap = "the ledger has block 9 after block 7; the node waits for those in between";
        assert_eq!(told(&mut last, &[9, 10]), [gap]);
        assert_eq!(last, 7, "it is asked for again");
        assert_eq!(told(&mut last, &[8, 9, 10]), ["8", "9", "10"]);
    }
}
