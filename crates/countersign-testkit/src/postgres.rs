//! A throw-away PostgreSQL, and a fresh database in it for each test.

use std::env;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::bindir;
use crate::supervisor::{Supervisor, User, command};

/// Whether a server survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// `fsync` off. The store refuses such a server unless the test tells it otherwise.
    Fast,
    /// `fsync` on, as in production; what crash tests use.
    Durable,
}

impl Durability {
    /// The variable that names a running server of this kind.
    pub fn variable(self) -> &'static str {
        match self {
            Durability::Fast => "TEST_DATABASE_URL",
            Durability::Durable => "TEST_DATABASE_URL_DURABLE",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Durability::Fast => &["fsync=off", "full_page_writes=off"],
            Durability::Durable => &["fsync=on", "synchronous_commit=on"],
        }
    }
}

/// A PostgreSQL server for tests. One that it started itself ends when this is dropped or its process dies.
#[derive(Debug)]
pub struct TestPostgres {
    bindir: PathBuf,
    address: Address,
    /// With the port it listens on; none for a server that somebody else started.
    supervisor: Option<(Supervisor, u16)>,
}

/// A database of its own for one test; dropped with this value, connections and all.
#[derive(Debug)]
pub struct TestDatabase {
    bindir: PathBuf,
    maintenance: String,
    name: String,
    url: String,
}

impl TestPostgres {
    /// Starts a new server on a private port of 127.0.0.1 and a socket in its own folder. Takes one to two seconds.
    ///
    /// # Errors
    ///
    /// Says how to get PostgreSQL where it is missing, and shows the server's log where it does not start.
    pub fn start(durability: Durability) -> Result<TestPostgres> {
        let bindir = bindir::find().context(bindir::HOW_TO_GET_IT)?;
        // The free port may be taken by somebody else before the server gets it; three in a row is another problem.
        let mut started = launch(&bindir, durability);
        for _ in 0..2 {
            match started {
                Err(ref error) if format!("{error:#}").contains("Address already in use") => {
                    started = launch(&bindir, durability);
                }
                Ok(_) | Err(_) => break,
            }
        }
        let (supervisor, port) = started?;
        let address = Address { server: format!("postgres://postgres@127.0.0.1:{port}"), query: String::new() };
        Ok(TestPostgres { bindir, address, supervisor: Some((supervisor, port)) })
    }

    /// The fast server of this test process: the one `TEST_DATABASE_URL` names, else one started at the first call.
    ///
    /// # Errors
    ///
    /// As [`TestPostgres::start`]; the same error again at every further call.
    pub fn shared() -> Result<&'static TestPostgres> {
        static SHARED: OnceLock<Result<TestPostgres, String>> = OnceLock::new();
        shared(&SHARED, Durability::Fast)
    }

    /// The durable server of this test process: the one `TEST_DATABASE_URL_DURABLE` names, else one started here.
    ///
    /// # Errors
    ///
    /// As [`TestPostgres::shared`].
    pub fn shared_durable() -> Result<&'static TestPostgres> {
        static SHARED: OnceLock<Result<TestPostgres, String>> = OnceLock::new();
        shared(&SHARED, Durability::Durable)
    }

    /// Takes a server that runs already and belongs to somebody else.
    ///
    /// # Errors
    ///
    /// When the text is no PostgreSQL URL, or PostgreSQL's client programs are missing.
    pub fn at(url: &str) -> Result<TestPostgres> {
        let bindir = bindir::find().context(bindir::HOW_TO_GET_IT)?;
        let address = Address::parse(url).with_context(|| format!("`{url}` is no PostgreSQL URL"))?;
        Ok(TestPostgres { bindir, address, supervisor: None })
    }

    /// Kills the server and all its processes at once (SIGKILL). It stays down until [`TestPostgres::revive`].
    ///
    /// # Errors
    ///
    /// When somebody else started the server: it is not ours to kill.
    pub fn kill(&self) -> Result<()> {
        self.own()?.0.kill()
    }

    /// Starts a killed server again, on the same data and the same port.
    ///
    /// # Errors
    ///
    /// When it does not come back.
    pub fn revive(&self) -> Result<()> {
        let (supervisor, port) = self.own()?;
        supervisor.revive(&self.bindir, *port)
    }

    fn own(&self) -> Result<&(Supervisor, u16)> {
        self.supervisor.as_ref().context("this server is somebody else's")
    }

    /// The URL of a database on this server, whether it exists or not.
    pub fn url(&self, database: &str) -> String {
        self.address.url(database)
    }

    /// Creates an empty database that no other test uses, in this process or another.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or refuses.
    pub fn create_database(&self) -> Result<TestDatabase> {
        let maintenance = self.url("postgres");
        let name = fresh_name();
        let mut createdb = client(&self.bindir, "createdb", &maintenance);
        finish(createdb.args(["--template", "template0", &name]))?;
        let url = self.url(&name);
        Ok(TestDatabase { bindir: self.bindir.clone(), maintenance, name, url })
    }
}

impl TestDatabase {
    /// What to connect to.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // A server that is gone took the database with it.
        let mut dropdb = client(&self.bindir, "dropdb", &self.maintenance);
        let _ = finish(dropdb.args(["--force", "--if-exists", &self.name]));
    }
}

/// The parts of a URL before and after the database's name.
#[derive(Debug)]
struct Address {
    server: String,
    query: String,
}

impl Address {
    fn parse(url: &str) -> Option<Address> {
        let (scheme, rest) = url.split_once("://")?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return None;
        }
        let (rest, query) =
            rest.split_once('?').map_or((rest, String::new()), |(rest, query)| (rest, format!("?{query}")));
        let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
        Some(Address { server: format!("{scheme}://{authority}"), query })
    }

    fn url(&self, database: &str) -> String {
        format!("{}/{database}{}", self.server, self.query)
    }
}

fn shared(
    cell: &'static OnceLock<Result<TestPostgres, String>>,
    durability: Durability,
) -> Result<&'static TestPostgres> {
    let start = || match env::var(durability.variable()) {
        Ok(url) => TestPostgres::at(&url).with_context(|| format!("from {}", durability.variable())),
        Err(_) => TestPostgres::start(durability),
    };
    cell.get_or_init(|| start().map_err(|error| format!("{error:#}"))).as_ref().map_err(|error| anyhow!("{error}"))
}

fn launch(bindir: &Path, durability: Durability) -> Result<(Supervisor, u16)> {
    let folder = TempDir::with_prefix("countersign-pg-").context("cannot make a temporary folder")?;
    let user = unprivileged(folder.path())?;
    let mut initdb = command(bindir.join("initdb"), folder.path(), user);
    initdb.arg("-D").arg(folder.path().join("data"));
    finish(initdb.args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]))?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let options = [&["listen_addresses=127.0.0.1", "max_connections=200"], durability.options()].concat();
    let supervisor = Supervisor::start(bindir, folder.keep(), user, port, &options)?;
    Ok((supervisor, port))
}

/// As root, gives the folder to the user `postgres`, who then runs the server. Anybody else runs it themselves.
fn unprivileged(folder: &Path) -> Result<Option<User>> {
    // The folder was made just now, so its owner is who we are.
    if folder.metadata()?.uid() != 0 {
        return Ok(None);
    }
    let user = User { uid: id("-u")?, gid: id("-g")? };
    chown(folder, Some(user.uid), Some(user.gid)).context("cannot give the folder to the user `postgres`")?;
    Ok(Some(user))
}

fn id(which: &str) -> Result<u32> {
    let output = Command::new("id").args([which, "postgres"]).output().context("cannot run `id`")?;
    if !output.status.success() {
        bail!("PostgreSQL does not run as root and there is no user `postgres`: add one (`useradd --system postgres`)");
    }
    String::from_utf8(output.stdout)?.trim().parse().context("`id` gave no number")
}

fn client(bindir: &Path, program: &str, maintenance: &str) -> Command {
    let mut client = command(bindir.join(program), Path::new("/"), None);
    client.args(["--maintenance-db", maintenance]);
    client
}

fn finish(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot run {program:?}"))?;
    ensure!(output.status.success(), "{program:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Unique over threads, processes and time, so that nothing left behind can be in the way.
fn fresh_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("test_{}_{counter}_{nanos}", std::process::id())
}
