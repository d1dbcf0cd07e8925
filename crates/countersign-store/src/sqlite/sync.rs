//! Brings commits to disk, while the writer works on the next, and only then tells who asked for them.
//!
//! INVARIANT: an answer is sent, a bell rung and a row shown to a reader only when the commit behind it is on disk.
//! After a sync that failed nobody knows what is, so nothing is answered or written any more.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use countersign::store::StoreError;
use tokio::sync::watch;

use super::state::News;
use super::writer::{Answer, Job, Message, Shared};

/// What brings the log to disk.
pub(super) trait Disk: Send {
    /// Returns when everything written to the log before is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Disk for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens the log of a database that is open.
pub(super) fn open_log(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let mut options = File::options();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(PathBuf::from(name))
}

/// How far commits have come, by their number.
pub(super) struct Progress {
    /// The last that a reader may see.
    begun: AtomicU64,
    /// The last that is on disk; none once a sync failed.
    synced: watch::Sender<Option<u64>>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { begun: AtomicU64::new(0), synced: watch::Sender::new(Some(0)) }
    }
}

impl Progress {
    /// A commit is about to happen; returns its number.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn has_failed(&self) -> bool {
        self.synced.borrow().is_none()
    }

    /// Waits until everything that can be seen by now is on disk.
    pub(super) async fn settled(&self) -> Result<(), StoreError> {
        let seen = self.begun.load(Ordering::Acquire);
        let mut synced = self.synced.subscribe();
        let reached = synced.wait_for(|synced| synced.is_none_or(|synced| synced >= seen)).await;
        match reached.map_err(|_| StoreError::Closed)?.is_some() {
            true => Ok(()),
            false => Err(lost()),
        }
    }
}

pub(super) fn lost() -> StoreError {
    StoreError::Failed("the disk did not take the last writes; see to the disk and start again".into())
}

/// What one transaction came to.
pub(super) struct Bundle {
    pub(super) number: u64,
    pub(super) jobs: Vec<Job>,
    pub(super) answers: Vec<Answer>,
    pub(super) news: News,
}

/// The thread that syncs.
pub(super) struct Syncer {
    pub(super) shore: Arc<Shore>,
    pub(super) bundles: Receiver<Bundle>,
    pub(super) writer: Sender<Message>,
}

impl Syncer {
    /// Works until the writer has ended.
    pub(super) fn work(self) {
        while let Ok(bundle) = self.bundles.recv() {
            let failed = self.shore.sync(bundle.number);
            // First the writer, which can commit what it has meanwhile.
            let _ = self.writer.send(Message::Synced);
            self.shore.answer(bundle, failed);
        }
    }
}

/// Where commits come to rest. The syncer brings them there; the writer does it itself where nobody else waits for it, and
/// saves a lone caller the way over another thread.
pub(super) struct Shore {
    disk: Mutex<Box<dyn Disk>>,
    shared: Arc<Shared>,
}

impl Shore {
    pub(super) fn new(disk: Box<dyn Disk>, shared: Arc<Shared>) -> Arc<Shore> {
        Arc::new(Shore { disk: Mutex::new(disk), shared })
    }

    /// Brings a commit to disk and tells who asked for it.
    pub(super) fn land(&self, bundle: Bundle) {
        let failed = self.sync(bundle.number);
        self.answer(bundle, failed);
    }

    /// Brings everything up to this commit to disk. True where that failed, now or before.
    fn sync(&self, number: u64) -> bool {
        let progress = &self.shared.progress;
        let synced = self.disk.lock().unwrap_or_else(PoisonError::into_inner).sync();
        if let Err(error) = &synced {
            tracing::error!(%error, "the log could not be brought to disk; nothing more is written");
        }
        let failed = synced.is_err() || progress.has_failed();
        progress.synced.send_replace((!failed).then_some(number));
        failed
    }

    fn answer(&self, bundle: Bundle, failed: bool) {
        let Bundle { jobs, answers, news, .. } = bundle;
        for (job, answer) in jobs.into_iter().zip(answers) {
            let answer = if failed { Err(lost().into()) } else { answer };
            // A caller that went away changes nothing: what it asked for is written.
            let _ = job.answer.send(answer);
        }
        let bell = &self.shared.bell;
        if news.all || failed {
            return bell.ring_all();
        }
        for call in &news.calls {
            bell.ring(*call);
        }
        if news.any && news.calls.is_empty() {
            bell.ring_any();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use countersign::store::{Expect, Failure, Store as _};
    use countersign::time::SystemClock;
    use futures::FutureExt as _;

    use super::super::{SqliteStore, file, migrate};
    use super::*;

    /// A disk that says when it is asked to sync, and does as it is told.
    struct Told {
        asked: Sender<()>,
        told: Receiver<io::Result<()>>,
    }

    impl Disk for Told {
        fn sync(&mut self) -> io::Result<()> {
            let _ = self.asked.send(());
            self.told.recv().unwrap_or(Ok(()))
        }
    }

    struct Test {
        store: Arc<SqliteStore>,
        asked: Receiver<()>,
        tell: Sender<io::Result<()>>,
        path: PathBuf,
        _folder: tempfile::TempDir,
    }

    fn test() -> Test {
        let folder = tempfile::tempdir().unwrap();
        let path = file::prepare(&folder.path().join("countersign.db")).unwrap();
        let connection = migrate::open_writer(&path).unwrap();
        let (asked_by, asked) = channel();
        let (tell, told) = channel();
        let disk = Box::new(Told { asked: asked_by, told });
        let store = Arc::new(SqliteStore::start(&path, connection, Arc::new(SystemClock), disk).unwrap());
        Test { store, asked, tell, path, _folder: folder }
    }

    fn put(store: &Arc<SqliteStore>, key: &'static str) -> tokio::task::JoinHandle<Result<u64, Failure>> {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.put_record("test", key, b"value", Expect::Absent, None).await })
    }

    fn committed(path: &Path) -> i64 {
        let connection = migrate::open_reader(path).unwrap();
        connection.query_row("SELECT count(*) FROM records", [], |row| row.get(0)).unwrap()
    }

    /// I1: nobody hears of a commit before it is on disk, neither who asked for it nor who reads.
    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_hears_of_a_commit_before_it_is_on_disk() {
        let test = test();
        let mut asked = put(&test.store, "a");
        test.asked.recv().unwrap();
        assert_eq!(committed(&test.path), 1, "other processes may see it");
        assert!((&mut asked).now_or_never().is_none(), "it was answered before the sync");
        assert!(test.store.shared.progress.settled().now_or_never().is_none(), "a reader would not wait");
        test.tell.send(Ok(())).unwrap();
        assert_eq!(asked.await.unwrap().unwrap(), 1);
        assert!(test.store.record("test", "a").await.unwrap().is_some());
    }

    /// What comes while one commit is brought to disk is one commit, after it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_busy_disk_makes_commits_larger() {
        let test = test();
        let first = put(&test.store, "a");
        test.asked.recv().unwrap();
        let rest = ["b", "c", "d"].map(|key| test.store.put_record("test", key, b"value", Expect::Absent, None));
        let mut rest = Box::pin(futures::future::join_all(rest));
        assert!(rest.as_mut().now_or_never().is_none());
        test.tell.send(Ok(())).unwrap();
        test.asked.recv().unwrap();
        assert_eq!(committed(&test.path), 4);
        test.tell.send(Ok(())).unwrap();
        assert!(rest.await.iter().all(Result::is_ok));
        first.await.unwrap().unwrap();
        assert_eq!(test.store.commits(), 2);
    }

    /// I1: after a sync that failed nothing is acknowledged, shown or written; another start finds a whole file.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_believed_after_a_sync_that_failed() {
        let test = test();
        test.tell.send(Err(io::Error::other("the disk is gone"))).unwrap();
        let failed = put(&test.store, "a").await.unwrap().unwrap_err();
        assert!(failed.to_string().contains("see to the disk"), "{failed}");
        assert!(put(&test.store, "b").await.unwrap().is_err());
        assert!(test.store.record("test", "a").await.is_err());
        assert_eq!(committed(&test.path), 1, "the second was never committed");
        let Test { store, path, _folder, .. } = test;
        drop(store);
        let store = SqliteStore::open(&path).await.unwrap();
        store.put_record("test", "b", b"value", Expect::Absent, None).await.unwrap();
    }
}
