//! A server of PostgreSQL for tests, benches and examples, in a temporary folder. Include this file with
//! `#[path]`; it needs the feature `tokens-postgres`.
//!
//! The server listens only on a Unix socket in its folder, and writes to disk as any server (`fsync`). It
//! ends when it is dropped, and also when the process ends in another way: a shell stops it when its input
//! ends.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

/// Attempts to reach the server, each a process: 30 s and more.
const ATTEMPTS: u32 = 5_000;
/// The programs that are needed, of one version.
const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_isready"];
/// The administrator of the server's databases, who needs no password.
const USER: &str = "geolock";
/// `$0`: the server. It ends at once, and its next start would recover; there is none.
const UNTIL_INPUT_ENDS: &str = "\"$0\" \"$@\" & cat > /dev/null; kill -QUIT $!; wait $!";

/// A server of PostgreSQL.
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempDir,
    server: Child,
}

impl PostgresServer {
    /// Starts a server, and waits until it is ready. Returns `None`, and says so, where PostgreSQL is not
    /// installed or nobody can run it.
    pub fn start() -> io::Result<Option<PostgresServer>> {
        let Some(programs) = programs() else {
            println!("SKIPPED: PostgreSQL is not installed ({} are not found)", PROGRAMS.join(", "));
            return Ok(None);
        };
        let folder = TempDir::new()?;
        // The server refuses to run as root.
        let user = match fs::metadata(&folder)?.uid() {
            0 => match unprivileged()? {
                None => {
                    println!("SKIPPED: PostgreSQL does not run as root, and there is no user postgres");
                    return Ok(None);
                }
                user => user,
            },
            _ => None,
        };
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group))?;
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(folder.path());
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
            command
        };
        let mut initdb = command(&programs.join("initdb"));
        initdb.args(["--pgdata=data", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        succeeded("initdb", &initdb.arg(format!("--username={USER}")).output()?)?;
        let mut server = command(Path::new("sh"));
        server.args(["-c", UNTIL_INPUT_ENDS]).arg(programs.join("postgres")).args(["-D", "data", "-k"]);
        server.arg(folder.path()).args(["-c", "listen_addresses=", "-c", "fsync=on"]);
        let log = fs::File::create(folder.path().join("log"))?;
        server.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let server = PostgresServer { server: server.spawn()?, folder };
        server.wait_until_ready(&programs)?;
        Ok(Some(server))
    }

    /// Makes a database, and returns its address.
    pub async fn database(&self, name: &str) -> Result<String, sqlx::Error> {
        let mut connection = PgConnection::connect(&self.address("postgres")).await?;
        connection.execute(AssertSqlSafe(format!("create database \"{name}\""))).await?;
        connection.close().await?;
        Ok(self.address(name))
    }

    fn address(&self, database: &str) -> String {
        format!("postgres://{USER}@localhost/{database}?host={}", self.folder.path().display())
    }

    fn wait_until_ready(&self, programs: &Path) -> io::Result<()> {
        let mut ready = Command::new(programs.join("pg_isready"));
        ready.args(["--quiet", "--dbname=postgres", "--host"]).arg(self.folder.path());
        for _ in 0..ATTEMPTS {
            if ready.status()?.success() {
                return Ok(());
            }
        }
        let log = fs::read_to_string(self.folder.path().join("log"))?;
        Err(io::Error::other(format!("PostgreSQL does not start: {log}")))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        // Then the folder can be deleted.
        let _ = self.server.wait();
    }
}

/// Returns the folder of the newest programs: Debian's, or one of the search path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut debian: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    debian.sort_by_key(version);
    let debian = debian.into_iter().rev().map(|path| path.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = debian.chain(std::env::split_paths(&path));
    folders.find(|folder| PROGRAMS.iter().all(|program| folder.join(program).is_file()))
}

/// Returns the user and the group `postgres`.
fn unprivileged() -> io::Result<Option<(u32, u32)>> {
    let users = fs::read_to_string("/etc/passwd")?;
    let user = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == "postgres").then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some((user, fields.next()?.parse().ok()?))
    });
    Ok(user)
}

fn succeeded(program: &str, output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}: {said}", output.status)))
}
