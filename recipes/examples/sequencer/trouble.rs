//! The trouble in the middle of a run.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::options::Options;
use super::report::Report;
use super::running::{Running, Scene};

/// A node that was killed is started again after this.
const DOWN: Duration = Duration::from_secs(4);
/// A datacenter that was switched off is switched on again after this.
const OFF: Duration = Duration::from_secs(8);

/// The trouble in the middle of a run.
pub struct Trouble {
    kill: Stage,
    partition: Stage,
}

enum Stage {
    Never,
    Waits,
    /// The node that was killed, or nothing.
    Since(Instant, usize),
    Over,
}

impl Trouble {
    pub fn new(options: &Options) -> Trouble {
        let stage = |is_wanted: bool| if is_wanted { Stage::Waits } else { Stage::Never };
        Trouble { kill: stage(options.kill), partition: stage(options.partition) }
    }

    /// Called with each block.
    pub async fn step(
        &mut self,
        is_middle: bool,
        report: &Report,
        nodes: &mut [Running],
        scene: &Scene<'_>,
    ) -> Result<(), String> {
        match self.kill {
            Stage::Waits if is_middle => {
                let coordinator = report.coordinator().unwrap_or_default();
                let place = nodes.iter().position(|node| node.config.name == coordinator).unwrap_or(0);
                nodes[place].kill().await;
                println!("killed {}, which coordinated", nodes[place].config.name);
                self.kill = Stage::Since(Instant::now(), place);
            }
            Stage::Since(at, place) if at.elapsed() >= DOWN => {
                nodes[place] = scene.start(nodes[place].config.clone())?;
                println!("started {} again", nodes[place].config.name);
                self.kill = Stage::Over;
            }
            _ => {}
        }
        match self.partition {
            Stage::Waits if is_middle => {
                scene.playground.switch(2, false).await?;
                println!("dc2 is off: c is cut off");
                self.partition = Stage::Since(Instant::now(), 0);
            }
            Stage::Since(at, _) if at.elapsed() >= OFF => {
                scene.playground.switch(2, true).await?;
                println!("dc2 is on again");
                self.partition = Stage::Over;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends what is still on its way.
    pub async fn end(&mut self, nodes: &mut [Running], scene: &Scene<'_>) -> Result<(), String> {
        if let Stage::Since(_, place) = self.kill {
            nodes[place] = scene.start(nodes[place].config.clone())?;
        }
        if let Stage::Since(at, _) = self.partition {
            sleep(OFF.saturating_sub(at.elapsed())).await;
            scene.playground.switch(2, true).await?;
        }
        Ok(())
    }
}
