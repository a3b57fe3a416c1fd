//! `geolock ca`: a cluster's certificate authority, and certificates for its datacenters and clients.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::pki::{
    Authority, CA_FILE, CA_KEY_FILE, CERT_FILE, CRL_FILE, Existing, KEY_FILE, Leaf, Role, Validity,
    check_label, day,
};
use geolock_api::names::{DcId, MAX_DCS, PLAIN, is_plain};

/// Longest validity of a certificate, in days: a century.
const MAX_DAYS: i64 = 36_500;

/// Issue and revoke the certificates of a cluster's datacenters and clients.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CaArgs {
    #[command(subcommand)]
    command: CaCommand,
}

#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
enum CaCommand {
    /// Create the authority of a new cluster.
    Init(InitArgs),
    /// Issue a certificate for a datacenter or a client, as a ready --tls folder.
    Issue(IssueArgs),
    /// Revoke certificates before they expire.
    ///
    /// Writes crl.pem into the folder of the authority, with all certificates that it has revoked. Copy
    /// crl.pem beside the certificate of every server (the folders of tls.dc and tls.api). From its next
    /// check (SIGHUP, or tls.check_interval) a server refuses new connections with such a certificate. Open
    /// connections stay.
    Revoke(RevokeArgs),
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct RevokeArgs {
    /// The folder of the authority.
    #[arg(long, value_name = "CADIR")]
    dir: PathBuf,
    /// Certificates (cert.pem) to revoke.
    #[arg(required = true, value_name = "CERT")]
    certificates: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct InitArgs {
    /// The name of the cluster, as in its servers' configuration: 1 to 64 of a-z, 0-9 and -.
    #[arg(long, value_name = "NAME", value_parser = cluster)]
    cluster: String,
    /// The folder to create the authority in.
    #[arg(long)]
    dir: PathBuf,
    /// Validity in days. Certificates that it issues expire with it at the latest.
    #[arg(long, value_name = "N", default_value_t = 3_650, value_parser = days())]
    days: u32,
    /// Replace an existing authority; all certificates that it issued become invalid.
    #[arg(long)]
    force: bool,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(group = ArgGroup::new("holder").required(true))]
struct IssueArgs {
    /// The folder of the authority.
    #[arg(long, value_name = "CADIR")]
    dir: PathBuf,
    /// The folder to write the certificate, its key and the authority's certificate to.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Issue for the datacenter with this number.
    #[arg(long, value_name = "ID", group = "holder", requires = "host", value_parser = dc)]
    dc: Option<DcId>,
    /// A DNS name or IP address of the datacenter for clients; may be given several times.
    #[arg(long, num_args = 1.., conflicts_with = "client")]
    host: Vec<String>,
    /// Issue for a client with this name: letters, digits, '.', '_', '-'.
    #[arg(long, value_name = "NAME", group = "holder", value_parser = label)]
    client: Option<String>,
    /// Validity in days.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = days())]
    days: u32,
    /// Replace an existing certificate.
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand, and prints the result to standard output.
pub fn run(args: CaArgs) -> anyhow::Result<()> {
    let mut said = Vec::new();
    execute(args, &mut said)?;
    match io::stdout().lock().write_all(&said) {
        // The certificate is made even if the output is not read.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn execute(args: CaArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        CaCommand::Init(args) => init(args, out),
        CaCommand::Issue(args) => issue(args, out),
        CaCommand::Revoke(args) => revoke(&args, out),
    }
}

fn init(args: InitArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let InitArgs { cluster, dir, days, force } = args;
    let authority = Authority::create(&dir, &cluster, Validity::days(days), existing(force))?;
    let dir = dir.display();
    writeln!(
        out,
        "Made the authority of cluster {cluster} in {dir}, good until {}.",
        day(authority.expires())
    )?;
    writeln!(out, "  {CA_FILE:<12} the authority that all of the cluster trusts")?;
    writeln!(out, "  {CA_KEY_FILE:<12} signs certificates: keep it safe, and off the servers")?;
    writeln!(out, "Next: geolock ca issue --dir {dir} --out dc0 --dc 0 --host HOST")?;
    writeln!(out, "      geolock ca issue --dir {dir} --out client --client NAME")?;
    Ok(())
}

fn issue(args: IssueArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let authority = Authority::load(&args.dir)?;
    let role = match (args.dc, args.client) {
        (Some(dc), _) => Role::Dc(dc),
        (None, Some(name)) => Role::Client(name),
        (None, None) => unreachable!("one of the group must be given"),
    };
    let leaf = Leaf { role, hosts: args.host, validity: Validity::days(args.days) };
    let issued = authority.issue(&args.out, &leaf, existing(args.force))?;
    let (cluster, folder) = (authority.cluster(), args.out.display());
    writeln!(out, "Issued a certificate for {} of cluster {cluster} into {folder}.", leaf.role)?;
    if !leaf.hosts.is_empty() {
        writeln!(out, "  reached at   {}", leaf.hosts.join(", "))?;
    }
    writeln!(out, "  good until   {}", day(issued.until))?;
    writeln!(out, "  files        {CA_FILE}, {CERT_FILE}, {KEY_FILE} (secret)")?;
    if matches!(leaf.role, Role::Client(_)) {
        writeln!(out, "Use it: geolock status --tls {folder} --connect HOST:PORT")?;
    }
    Ok(())
}

fn revoke(args: &RevokeArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let authority = Authority::load(&args.dir)?;
    let revoked = authority.revoke(&args.dir, &args.certificates)?;
    let list = args.dir.join(CRL_FILE);
    writeln!(
        out,
        "{} has {revoked} revoked certificate{} of cluster {}.",
        list.display(),
        if revoked == 1 { "" } else { "s" },
        authority.cluster(),
    )?;
    writeln!(
        out,
        "Copy it into the folders of certificates of every server (tls.dc, tls.api), then send SIGHUP."
    )?;
    Ok(())
}

fn existing(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Refuse }
}

fn cluster(text: &str) -> Result<String, String> {
    if is_plain(text) { Ok(text.into()) } else { Err(format!("a cluster is called by {PLAIN}")) }
}

fn label(text: &str) -> Result<String, String> {
    check_label(text).map(|()| text.into()).map_err(|error| error.to_string())
}

fn dc(text: &str) -> Result<DcId, String> {
    let id = text.parse().ok().and_then(DcId::new);
    id.ok_or_else(|| format!("datacenters have whole numbers below {MAX_DCS}"))
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=MAX_DAYS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tempfile::TempDir;

    use super::*;
    use crate::pki::Credentials;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        ca: CaArgs,
    }

    /// Returns the output of the command, or its error.
    fn ca(command: &str) -> Result<String, String> {
        let words = std::iter::once("ca").chain(command.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        execute(cli.ca, &mut out).map_err(|error| format!("{error:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn folder() -> (TempDir, String) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        (dir, path)
    }

    #[test]
    fn an_authority_issues_for_datacenters_and_clients() {
        let (_dir, path) = folder();
        let made = ca(&format!("init --cluster prod --dir {path}/ca")).unwrap();
        assert!(made.contains("cluster prod") && made.contains("Next: geolock ca issue"), "{made}");

        let issue =
            format!("issue --dir {path}/ca --out {path}/dc2 --dc 2 --host dc2.example --host 10.0.0.2");
        let issued = ca(&issue).unwrap();
        assert!(issued.contains("datacenter dc2 of cluster prod"), "{issued}");
        assert!(issued.contains("dc2.example, 10.0.0.2"), "{issued}");
        let loaded = Credentials::load(format!("{path}/dc2").as_ref()).unwrap();
        assert_eq!(loaded.identity().to_string(), "geolock://prod/dc/2");

        let issued = ca(&format!("issue --dir {path}/ca --out {path}/ci --client ci --days 7")).unwrap();
        assert!(issued.contains("client ci") && issued.contains("--tls"), "{issued}");
        let loaded = Credentials::load(format!("{path}/ci").as_ref()).unwrap();
        assert_eq!(loaded.identity().to_string(), "geolock://prod/client/ci");
    }

    #[test]
    fn nothing_is_replaced_without_force() {
        let (_dir, path) = folder();
        let init = format!("init --cluster prod --dir {path}/ca");
        ca(&init).unwrap();
        assert!(ca(&init).unwrap_err().contains("--force"));
        let issue = format!("issue --dir {path}/ca --out {path}/ci --client ci");
        ca(&issue).unwrap();
        assert!(ca(&issue).unwrap_err().contains("--force"));
        ca(&format!("{issue} --force")).unwrap();
        ca(&format!("{init} --force")).unwrap();
    }

    #[test]
    fn mistakes_are_explained() {
        let (_dir, path) = folder();
        let mistaken = |command: String, wanted: &str| {
            let error = ca(&command).unwrap_err();
            assert!(error.contains(wanted), "{wanted}: {error}");
        };
        mistaken(format!("issue --dir {path}/ca --out {path}/x --client ci"), "geolock ca init");
        ca(&format!("init --cluster prod --dir {path}/ca")).unwrap();
        let issue = format!("issue --dir {path}/ca --out {path}/x");
        mistaken(issue.clone(), "--dc");
        mistaken(format!("{issue} --dc 1 --client ci --host h"), "cannot be used");
        mistaken(format!("{issue} --dc 1"), "--host");
        mistaken(format!("{issue} --client ci --host h"), "cannot be used");
        mistaken(format!("{issue} --dc 64 --host h"), "below 64");
        mistaken(format!("{issue} --dc 1 --host h:7400"), "neither an IP address nor a DNS name");
        mistaken(format!("{issue} --client a/b"), "a-z");
        mistaken(format!("{issue} --client ci --days 0"), "1..=36500");
        mistaken(format!("init --cluster a/b --dir {path}/y"), "a-z");
    }
}
