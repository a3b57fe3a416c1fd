//! `geolock lock` and `geolock top` at a terminal, below a shell with job control, as `script` (part of every
//! Linux) provides one.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use crate::fixture::{Cluster, Output, Running, servers};

/// An interactive shell in its own terminal.
struct Shell {
    screen: Running,
    keyboard: ChildStdin,
}

impl Shell {
    fn start(cluster: &Cluster) -> Shell {
        let geolock = cluster.command(0, [""; 0]);
        // Ctrl-C does nothing where SIGINT is ignored, as below `cargo test &` in a script.
        let mut command = Command::new("env");
        command.args("--default-signal=INT,QUIT script -q -e -f -c".split(' '));
        command.args(["bash --norc --noprofile --noediting -i", "/dev/null"]);
        for (name, value) in geolock.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env("GEOLOCK", geolock.get_program()).env("PS1", "").stdin(Stdio::piped());
        let mut screen = Running::start(&mut command, Output::Stdout);
        let keyboard = screen.stdin();
        let mut shell = Shell { screen, keyboard };
        shell.types("echo rea''dy\n");
        shell.screen.line("ready");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Types a line that is shown twice: by the terminal, and by the `cat` that reads it.
    fn types_to_cat(&mut self, line: &str) {
        self.types(&format!("{line}\n"));
        self.screen.line(line);
        self.screen.line(line);
    }

    /// Waits for this line in the output.
    fn shows(&mut self, text: &str) {
        self.screen.line(text);
    }
}

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";

#[test]
fn the_command_reads_the_keyboard_and_ctrl_c_is_its() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK lock x -- sh -c 'echo he''re; read line; echo got $line'; echo rc=$?\n");
    shell.shows("here");
    shell.types("something\n");
    shell.shows("got something");
    shell.shows("rc=0");
    shell.types("$GEOLOCK lock x -- cat; echo rc=$?\n");
    shell.types_to_cat("first");
    shell.types(CTRL_C);
    shell.types("\necho rc=$?\n");
    shell.shows("rc=130");
}

#[test]
fn ctrl_z_stops_it_and_fg_goes_on() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK lock --ttl 1min x -- cat\n");
    shell.types_to_cat("first");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    shell.types("fg\n");
    shell.shows("lock --ttl 1min x -- cat");
    shell.types_to_cat("second");
    shell.types(CTRL_D);
    shell.types("echo rc=$?\n");
    shell.shows("rc=0");
}

#[test]
fn a_lock_that_was_lost_while_all_stood_still_is_noticed_before_anything_runs() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK lock --ttl 1s x -- cat\n");
    shell.types_to_cat("first");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    // The next one gets it when the lease of the stopped one has ended.
    shell.types("$GEOLOCK lock x -- echo the nex''t one\n");
    shell.shows("the next one");
    shell.types("fg; echo rc=$?\n");
    shell.shows("the locks are lost");
    shell.shows("rc=74");
}

#[test]
fn one_that_waits_in_the_background_leaves_the_screen_alone() {
    let cluster = servers(1).listening();
    let mut holder = cluster.command(0, ["lock", "x", "--", "sh", "-c", "echo in; cat"]);
    let mut holder = Running::start(holder.stdin(Stdio::piped()), Output::Stdout);
    holder.line("in");
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK lock x -- echo do''ne & echo sta''rted\n");
    shell.shows("started");
    // Another waiter, whose standard error is not a terminal: when it has polled, the first one has polled,
    // too.
    let mut beside = cluster.command(0, ["lock", "--verbose", "x", "--", "true"]);
    let mut beside = Running::start(&mut beside, Output::Stderr);
    beside.line("of 2 in the queue");
    shell.types("echo af''ter\n");
    let line = shell.screen.line("after");
    let before = shell.screen.drain();
    assert!(!before.iter().chain([&line]).any(|line| line.contains("waiting for x")), "{before:?} {line}");
    shell.types("fg\n");
    // Its line does not end by itself.
    let Shell { screen, keyboard } = &mut shell;
    screen
        .line_after("waiting for x: held by", |_| keyboard.write_all(b"\n").expect("the terminal is there"));
    drop(holder.stdin());
    shell.shows("done");
}

#[test]
fn in_a_pipeline_whoever_needs_the_keyboard_gets_it() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK lock x -- echo piped | (read line; read key < /dev/tty; echo $line and $key)\n");
    shell.types("a key\n");
    shell.shows("piped and a key");
    shell.types(
        "echo piped | $GEOLOCK lock x -- sh -c 'read line; read key < /dev/tty; echo $line and $key'\n",
    );
    shell.types("another key\n");
    shell.shows("piped and another key");
}

/// Shows if the terminal is in the mode in which a shell leaves it.
fn says_its_mode(shell: &mut Shell) {
    shell.types("case $(stty -a) in *' -icanon'*|*' -echo '*) echo ra''w;; *) echo coo''ked;; esac\n");
}

#[test]
fn top_takes_the_screen_and_gives_it_back() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    for end in ["q", CTRL_C] {
        shell.types("stty cols 60 rows 10; $GEOLOCK top --interval 100ms; echo rc=$?\n");
        shell.shows("\x1b[?1049h");
        shell.shows("GRANTS");
        shell.types("x");
        shell.shows("GRANTS");
        shell.types(end);
        let left = shell.screen.line("rc=0");
        assert!(left.contains("\x1b[?1049l") && left.contains("\x1b[?25h"), "{left:?}");
        says_its_mode(&mut shell);
        shell.shows("cooked");
    }
    let frames: Vec<&String> = shell.screen.seen.iter().filter(|line| line.contains("GRANTS")).collect();
    assert!(frames.iter().all(|line| line.contains("\x1b[K")), "each line is written over the one before");
}

#[test]
fn top_can_be_stopped_and_goes_on() {
    let cluster = servers(1).listening();
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK top --interval 100ms; echo rc=$?\n");
    shell.shows("GRANTS");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    says_its_mode(&mut shell);
    shell.shows("cooked");
    shell.types("fg; echo rc=$?\n");
    shell.shows("\x1b[?1049h");
    shell.shows("GRANTS");
    shell.types("q");
    shell.shows("rc=0");
    says_its_mode(&mut shell);
    shell.shows("cooked");
}

#[test]
fn a_datacenter_leaves_when_the_operator_says_yes() {
    let mut cluster = servers(1).listening();
    cluster.server(0).line("the list of decisions begins");
    let mut shell = Shell::start(&cluster);
    shell.types("$GEOLOCK member remove 0; echo \"code $?\"\n");
    shell.types("n\n");
    // The terminal has shown the answer before the question, which has no end of line.
    let line = shell.screen.line("not confirmed: nothing was changed");
    assert!(line.contains("its server ends when none of them holds a lock. Go on? [y/N]"), "{line}");
    shell.shows("code 1");
    for (option, key) in [("", "y\n"), ("--yes", "")] {
        shell.types(&format!("$GEOLOCK member remove 0 {option}\n{key}"));
        shell.shows("no member would remain without dc0");
    }
}
