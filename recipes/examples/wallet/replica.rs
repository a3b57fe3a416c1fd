//! A replica: pays from wallet to wallet until its input ends, and tells its counters every second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use geolock_client::DcId;
use geolock_recipes::selector::{
    ApplyError, Pool, SelectError, Selection, SelectorOptions, Token, TokenId, TokenSelector, TxId,
};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::database::{Payment, Place, Wallets};
use super::playground::connect;
use super::report::Told;

/// Pause after an error of the database, and before a payment after one in vain.
const PAUSE: Duration = Duration::from_millis(100);

/// The settings of a replica.
pub struct Replica {
    pub dc: u8,
    /// How often it was started before: its payments have other names each time.
    pub boot: u32,
    pub payers: u32,
    pub base: u16,
    pub tls: PathBuf,
    pub place: Place,
}

struct Payer {
    name: String,
    home: DcId,
    pools: Vec<Pool>,
    wallets: Wallets,
    selector: TokenSelector<Wallets>,
    payments: AtomicU64,
    in_vain: AtomicU64,
}

impl Replica {
    pub async fn run(self, leave: impl Future<Output = ()>) -> Result<(), String> {
        let name = format!("replica-{}-{}", self.dc, self.boot);
        let wallets = Wallets::open(&self.place).await.map_err(|error| error.to_string())?;
        let client = connect(self.base, &self.tls, self.dc, &name).await?;
        // Short ones, so that what a killed replica had reserved returns while one looks.
        let mut options = SelectorOptions::default();
        options.space = "wallet".to_owned();
        options.reserve_for = Duration::from_secs(10);
        let selector = TokenSelector::new(client, wallets.clone(), options);
        let selector = selector.map_err(|error| error.to_string())?;
        let home = DcId::new(self.dc).ok_or("there is no such datacenter")?;
        let (payments, in_vain) = (AtomicU64::new(0), AtomicU64::new(0));
        let payer = Payer { name, home, pools: super::wallets(), wallets, selector, payments, in_vain };
        let payer = Arc::new(payer);
        for number in 0..self.payers {
            tokio::spawn(Arc::clone(&payer).pay_on(number));
        }
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(leave);
        loop {
            tokio::select! {
                () = &mut leave => break,
                _ = second.tick() => println!("{}", payer.told()),
            }
        }
        println!("{}", payer.told());
        Ok(())
    }
}

impl Payer {
    fn told(&self) -> Told {
        let stats = self.selector.stats();
        Told {
            payments: self.payments.load(Ordering::Relaxed),
            in_vain: self.in_vain.load(Ordering::Relaxed),
            waits: stats.waits,
            attempts: stats.locks_granted + stats.refused,
            spent: stats.spent,
        }
    }

    async fn pay_on(self: Arc<Payer>, number: u32) {
        // Payers take the wallets in different orders.
        for payment in 0_u64.. {
            let turn = payment.wrapping_mul(7) + u64::from(number) + u64::from(self.home.get());
            let count = self.pools.len() as u64;
            let (from, to) =
                ((turn % count) as usize, ((turn + 1 + turn / count % (count - 1)) % count) as usize);
            let tx = TxId::new(format!("{}-{number}-{payment}", self.name)).expect("a short name");
            match self.pay(&tx, &self.pools[from], &self.pools[to], 1 + turn % 9).await {
                Ok(()) => self.payments.fetch_add(1, Ordering::Relaxed),
                Err(why) => {
                    eprintln!("{tx}: {why}");
                    sleep(PAUSE).await;
                    self.in_vain.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
    }

    async fn pay(&self, tx: &TxId, from: &Pool, to: &Pool, amount: u64) -> Result<(), SelectError> {
        let picked = self.selector.select(tx, from, amount).await?;
        self.selector.reserve(tx).await?;
        let new = |name: &str, amount, home| Token {
            id: TokenId::new(format!("{tx}-{name}")).expect("a short name"),
            amount,
            home,
        };
        let paid = new("paid", amount, Some(self.home));
        let change = match picked.change() {
            0 => Vec::new(),
            change => vec![new("change", change, self.selector.home_for_change(&picked).await)],
        };
        if let Err(why) = self.apply(&picked, from, (to, &paid), &change).await {
            eprintln!("{tx}: {why}");
            return self.selector.release(tx).await;
        }
        self.selector.spent(tx, &change).await?;
        self.selector.added(to, std::slice::from_ref(&paid)).await
    }

    /// Applies the payment, again until the database has answered.
    async fn apply(
        &self,
        picked: &Selection,
        from: &Pool,
        (to, paid): (&Pool, &Token),
        change: &[Token],
    ) -> Result<(), ApplyError> {
        let inputs: Vec<TokenId> = picked.tokens().iter().map(|token| token.id.clone()).collect();
        let mut outputs = vec![(to.clone(), paid.clone())];
        outputs.extend(change.iter().map(|token| (from.clone(), token.clone())));
        let (tx, fence) = (picked.tx(), picked.fence().0);
        let payment = Payment { tx, pool: from, inputs: &inputs, fence, outputs: &outputs };
        loop {
            match self.wallets.apply(&payment).await {
                Err(ApplyError::Source(why)) => {
                    eprintln!("{tx}: {why}");
                    sleep(PAUSE).await;
                }
                applied => return applied,
            }
        }
    }
}
