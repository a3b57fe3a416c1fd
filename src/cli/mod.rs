//! Edge. The command line: one file per subcommand.

pub mod ca;
pub mod sim;
