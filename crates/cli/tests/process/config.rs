//! The settings of a broker: which source counts, what is said of wrong ones, and what a reload changes while the
//! broker runs.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{Mode, OFlags};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    asking,
    bounds::{Watch, until},
    broker::{Broker, run, sennit},
};

/// The binary without variables of settings.
fn plain(arguments: &[&str]) -> Command {
    let mut command = sennit(arguments);
    command.env_remove("RUST_LOG").env_remove("SENNIT_INIT_ADMIN");
    command
}

fn written(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("sennit.toml");
    fs::write(&path, text).unwrap();
    path
}

/// The exit code, what was printed, and what was said.
fn ran(command: Command) -> (i32, String, String) {
    let output = run(command, b"");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The value of a setting and its source, as `config show` has them.
fn shown(printed: &str, setting: &str) -> (Value, Value) {
    let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found = lines.filter(|line| line["setting"] == setting);
    let line = found.next().unwrap();
    (line["value"].clone(), line["source"].clone())
}

#[test]
fn a_check_tells_all_problems_of_a_file_and_of_the_environment() {
    let folder = TempDir::new().unwrap();
    let path = written(
        &folder,
        "[http]\nlisen = ':80'\nconnections = '7'\n\n[streams]\nstorage = 'disk'\n[jornal]\n",
    );
    let mut check = plain(&["config", "check", "--config"]);
    check.arg(&path).env("SENNIT_LOG__FORMATS", "json");
    let (code, printed, said) = ran(check);
    let file = path.display();
    assert_eq!((code, &*printed), (2, ""));
    let lines: Vec<_> = said.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            format!("{file}:2: http has no field \"lisen\"; did you mean \"listen\"?"),
            format!("{file}:3: http.connections is a number: write 7 without quotes"),
            format!(
                "{file}:6: streams.storage: \"disk\" is no storage mode: memory, file-fast, \
                 file-durable or acid"
            ),
            format!("{file}:7: there is no section \"jornal\"; did you mean \"journal\"?"),
            "SENNIT_LOG__FORMATS: log has no field \"formats\"; did you mean \"format\"?"
                .to_owned(),
        ]
    );
    // The broker does not start by it either.
    let mut serve = plain(&["serve", "--until-stdin-ends", "--config"]);
    serve.arg(&path).current_dir(folder.path());
    let (code, _, said) = ran(serve);
    assert_eq!(code, 2);
    assert!(said.contains("did you mean \"journal\"?"), "{said}");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn what_the_broker_itself_refuses_is_told_with_its_source() {
    let folder = TempDir::new().unwrap();
    let path = written(&folder, "[server]\ncores = 0\n");
    let mut check = plain(&["config", "check", "--config"]);
    check.arg(&path);
    let (code, _, said) = ran(check);
    assert_eq!(code, 2);
    let expected = format!("sennit: {}:2: server.cores (--cores): 0 is not", path.display());
    assert!(said.starts_with(&expected), "{said}");
    let (code, _, said) = ran(plain(&["config", "check", "--config", "/nowhere/sennit.toml"]));
    assert_eq!(code, 2);
    assert!(said.contains("/nowhere/sennit.toml cannot be read"), "{said}");
}

#[test]
fn flags_come_before_variables_before_the_file_before_defaults() {
    let folder = TempDir::new().unwrap();
    let path = written(
        &folder,
        "[http]\nconnections = 1\norigins = ['https://a.example']\n[journal]\nsegments = 11\n\
         scrub_every = '1d'\n[native]\nlisten = '127.0.0.1:1'\n",
    );
    let mut show = plain(&["config", "show", "--json", "--http-connections", "3"]);
    show.env("SENNIT_CONFIG", &path)
        .env("SENNIT_HTTP__CONNECTIONS", "2")
        .env("SENNIT_JOURNAL__SEGMENTS", "12")
        .env("RUST_LOG", "warn");
    let (code, printed, said) = ran(show);
    assert_eq!((code, &*said), (0, ""));
    let of_file = |line| serde_json::json!({ "kind": "file", "path": path, "line": line });
    for (setting, value, source) in [
        ("http.connections", "3", r#"{"kind":"flag","flag":"--http-connections"}"#),
        (
            "journal.segments",
            "12",
            r#"{"kind":"environment","variable":"SENNIT_JOURNAL__SEGMENTS"}"#,
        ),
        ("log.filter", "\"warn\"", r#"{"kind":"environment","variable":"RUST_LOG"}"#),
        ("http.origins", r#"["https://a.example"]"#, &of_file(3).to_string()),
        ("journal.scrub_every", "\"1d\"", &of_file(6).to_string()),
        ("native.listen", "\"127.0.0.1:1\"", &of_file(8).to_string()),
        ("journal.cache_size", "\"32MiB\"", r#"{"kind":"default"}"#),
        ("server.shards", "null", r#"{"kind":"default"}"#),
    ] {
        let expected =
            (serde_json::from_str(value).unwrap(), serde_json::from_str(source).unwrap());
        assert_eq!(shown(&printed, setting), expected, "{setting}");
    }
}

#[test]
fn the_defaults_that_are_printed_pass_the_check_and_change_nothing() {
    let (code, defaults, _) = ran(plain(&["config", "defaults"]));
    assert_eq!(code, 0);
    let folder = TempDir::new().unwrap();
    let path = written(&folder, &defaults);
    let of_file = |verb| {
        let mut command = plain(&["config", verb, "--config"]);
        command.arg(&path);
        ran(command)
    };
    assert_eq!(of_file("check").0, 0);
    let (code, all, _) = of_file("show");
    assert_eq!(code, 0);
    assert_eq!(all, ran(plain(&["config", "show"])).1);
    assert!(all.lines().count() > 20 && all.lines().all(|line| line.ends_with("\tdefault")));
}

/// A broker with a settings file, whose log goes to a file.
struct Logged {
    broker: Broker,
    folder: TempDir,
}

impl Logged {
    fn start(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = written(&folder, text);
        let mut program = plain(&[]);
        program.stderr(File::create(folder.path().join("log")).unwrap());
        let flags = ["--shards", "1", "--config", path.to_str().unwrap()];
        let broker = Broker::start_by(program, &folder.path().join("data"), &flags);
        Self { broker, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Writes the file again and tells the broker; waits until its log has a line that ends so.
    fn reload(&self, text: &str, done: &str) -> String {
        let before = self.log().len();
        written(&self.folder, text);
        let pid = self.broker.pid().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        let news = || self.log()[before..].to_owned();
        until("the reload is logged", || news().lines().any(|line| line.contains(done)));
        news()
    }

    /// The status of a request that names this host.
    fn status(&self, host: &str) -> u16 {
        let answer = asking::ask_at(&self.broker.http, "GET", "/healthz", &[("host", host)], "");
        answer.expect("it is answered").status
    }
}

#[test]
fn a_reload_changes_what_can_change_and_says_what_needs_a_restart() {
    let mut logged = Logged::start("[journal]\nsegments = 9\nscrub_every = 'off'\n");
    assert_eq!(logged.status("broker.example"), 421);
    let news = logged.reload(
        "[http]\nhosts = ['broker.example']\n[journal]\nsegments = 10\nscrub_every = '2d'\n\
         [streams]\nstorage = 'memory'\nlong_poll_timeout = '10ms'\n",
        "the settings were read again",
    );
    for (setting, old, new, is_restart) in [
        ("http.hosts", "-", "broker.example", false),
        ("journal.scrub_every", "off", "2d", false),
        ("streams.storage", "file-durable", "memory", false),
        ("streams.long_poll_timeout", "30s", "10ms", false),
        ("journal.segments", "9", "10", true),
    ] {
        let what = if is_restart { "needs a restart" } else { "changed by a reload" };
        let values = format!("setting={setting} old={old} new={new}");
        let is_told = |line: &str| line.contains(what) && line.contains(&values);
        assert!(news.lines().any(is_told), "{setting}: {news}");
    }
    until("the host is allowed", || logged.status("broker.example") == 200);
    // A stream is kept as the new settings say, and a read of it waits no longer than they say.
    let http = &logged.broker.http;
    let text = [("content-type", "text/plain")];
    until("streams are kept in memory", || {
        let path = "kept";
        let created = asking::ask(http, "PUT", path, &text, "").expect("it is answered");
        let storage = created.header("stream-storage").map(str::to_owned);
        asking::ask(http, "DELETE", path, &[], "").expect("it is answered");
        storage.as_deref() == Some("memory")
    });
    asking::ask(http, "PUT", "a", &text, "").expect("it is answered");
    let read = asking::ask(http, "GET", "a?offset=now&live=long-poll", &[], "");
    assert_eq!(read.expect("it is answered").status, 204);
    // What needs a restart is said again, until there was one.
    let news = logged.reload("[journal]\nsegments = 10\n", "the settings were read again");
    assert!(news.contains("setting=journal.segments old=9 new=10"), "{news}");
    assert!(news.contains("setting=http.hosts old=broker.example new=-"), "{news}");
    until("the host is not allowed", || logged.status("broker.example") == 421);
    assert_eq!(logged.broker.terminate(), Some(0));
}

#[test]
fn settings_with_a_problem_change_nothing() {
    let mut logged = Logged::start("[http]\nhosts = ['broker.example']\n");
    let news = logged.reload(
        "[http]\nhosts = []\nconnections = 'many'\n[log]\nfilter = 'warn'\nlevel = 1\n",
        "the reload has changed nothing",
    );
    assert!(news.contains("sennit.toml:3: http.connections is a number"), "{news}");
    assert!(news.contains("sennit.toml:6: log has no field \"level\""), "{news}");
    // What the broker refuses in the end is a problem too.
    let news = logged.reload("[server]\ncores = 0\n", "the reload has changed nothing");
    assert!(news.contains("sennit.toml:2: server.cores (--cores): 0 is not possible"), "{news}");
    fs::remove_file(logged.folder.path().join("sennit.toml")).unwrap();
    assert_eq!(logged.status("broker.example"), 200);
    let news = logged.reload("[http]\nhosts = ['broker.example']\n", "were read again");
    assert!(news.contains("changed=0 restarts=0"), "{news}");
    assert_eq!(logged.status("broker.example"), 200);
    assert_eq!(logged.broker.terminate(), Some(0));
}

#[test]
fn a_hangup_before_the_broker_serves_does_not_end_it_and_counts_once_it_does() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sennit.toml");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let log = folder.path().join("log");
    let mut serve = plain(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    serve.arg("--data").arg(folder.path().join("data")).arg("--config").arg(&path);
    serve.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let mut broker = serve.spawn().unwrap();
    let _watch = Watch::over(&broker, "a broker that was told to reload too early");
    let pid = broker.id().to_string();
    let tell = |signal: &str| {
        assert!(Command::new("kill").args([signal, pid.as_str()]).status().unwrap().success());
    };
    // It waits for its settings to be written: nothing is recovered yet.
    let mut settings = None;
    until("the broker opens its settings", || {
        let opened = rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        settings = opened.ok().map(File::from);
        settings.is_some()
    });
    tell("-HUP");
    fs::remove_file(&path).unwrap();
    written(&folder, "[http]\nhosts = ['later.example']\n");
    settings.unwrap().write_all(b"[http]\nhosts = ['early.example']\n").unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    let changed = "setting=http.hosts old=early.example new=later.example";
    until("the reload is logged", || said().contains(changed));
    let http = || said().lines().find_map(|line| Some(line.split_once(", http on ")?.1.to_owned()));
    until("the broker serves", || http().is_some());
    let http = http().unwrap();
    until("the host is allowed", || {
        let host = [("host", "later.example")];
        asking::ask_at(&http, "GET", "/healthz", &host, "").is_some_and(|it| it.status == 200)
    });
    tell("-TERM");
    assert_eq!(broker.wait().unwrap().code(), Some(0), "{}", said());
}

#[test]
fn a_reload_changes_what_is_logged() {
    let mut logged = Logged::start("");
    let text = "[log]\nfilter = 'warn'\n[journal]\nsegments = 9\n";
    let news = logged.reload(text, "needs a restart");
    // The line that says so is one of those that are not logged any more.
    assert!(!news.contains("log.filter"), "{news}");
    let news = logged.reload("[log]\nfilter = 'debug'\n", "were read again");
    assert!(news.contains("setting=log.filter old=warn new=debug"), "{news}");
    assert_eq!(logged.broker.terminate(), Some(0));
}

#[test]
fn flags_and_variables_keep_what_they_have_set_over_a_reload() {
    let folder = TempDir::new().unwrap();
    let path = written(&folder, "[http]\nhosts = ['file.example']\n");
    let mut show = plain(&["config", "show", "--json", "--http-host", "flag.example"]);
    show.arg("--config").arg(Path::new(&path));
    let (_, printed, _) = ran(show);
    assert_eq!(shown(&printed, "http.hosts").0, serde_json::json!(["flag.example"]));
}
