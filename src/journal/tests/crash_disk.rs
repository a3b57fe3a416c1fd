//! A disk in memory. After a power cut it keeps what a real one may keep: all synced bytes, and any part of
//! the rest, in any order. It can also fill up, fail, hold a sync until released, and omit syncs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::super::disk::{Disk, DiskFile};

/// A small generator: the same seed gives the same run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A call that this disk only pretends to make. It simulates a program that forgot it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgets {
    Nothing,
    SyncDir,
    SyncFile,
}

#[derive(Clone)]
enum FileOp {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

enum DirOp {
    Link { name: String, file: usize },
    Rename { from: String, to: String, file: usize },
    Remove { name: String },
}

#[derive(Clone, Default)]
struct FileState {
    /// The content as programs see it.
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<FileOp>,
}

struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced: Vec<DirOp>,
    forgets: Forgets,
    /// The number of changing calls until the process dies within one.
    calls_left: Option<u64>,
    capacity: Option<usize>,
    sync_fails: Option<io::ErrorKind>,
    write_fails: Option<io::ErrorKind>,
    hides_free: bool,
    hold_syncs: bool,
    syncs_held: u64,
}

#[derive(Clone)]
pub struct CrashDisk {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
}

pub struct CrashFile {
    disk: CrashDisk,
    file: usize,
}

impl CrashDisk {
    pub fn new(forgets: Forgets) -> CrashDisk {
        let state = State {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced: Vec::new(),
            forgets,
            calls_left: None,
            capacity: None,
            sync_fails: None,
            write_fails: None,
            hides_free: false,
            hold_syncs: false,
            syncs_held: 0,
        };
        CrashDisk { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Makes the process die within the `calls`-th changing call from now.
    pub fn die_after(&self, calls: Option<u64>) {
        self.lock().calls_left = calls;
    }

    pub fn dead(&self) -> bool {
        self.lock().calls_left == Some(0)
    }

    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.lock().capacity = bytes;
    }

    /// Returns how many bytes programs see in use.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    pub fn fail_syncs(&self, kind: io::ErrorKind) {
        self.lock().sync_fails = Some(kind);
    }

    /// Makes writes fail with this error from now on, without effect.
    pub fn fail_writes(&self, kind: Option<io::ErrorKind>) {
        self.lock().write_fails = kind;
    }

    /// Makes the disk report no free space.
    pub fn hide_free(&self) {
        self.lock().hides_free = true;
    }

    pub fn hold_syncs(&self) {
        self.lock().hold_syncs = true;
    }

    /// Waits until a sync is being held.
    pub fn wait_for_held_sync(&self) {
        let mut state = self.lock();
        while state.syncs_held == 0 {
            state = self.changed.wait(state).expect("no test panics with it");
        }
    }

    pub fn release_syncs(&self) {
        self.lock().hold_syncs = false;
        self.changed.notify_all();
    }

    /// Simulates a power cut.
    pub fn crash(&self, rng: &mut Rng) {
        let mut state = self.lock();
        let state = &mut *state;
        for file in &mut state.files {
            file.content = file.durable.clone();
            for op in std::mem::take(&mut file.unsynced) {
                keep_some(&mut file.content, &op, rng);
            }
            file.durable = file.content.clone();
        }
        state.names = state.durable_names.clone();
        for op in std::mem::take(&mut state.unsynced) {
            if rng.one_in(2) {
                apply(&mut state.names, &op);
            }
        }
        state.durable_names = state.names.clone();
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[state.names[name]].content.clone()
    }

    /// Replaces a file from outside, durably.
    pub fn set_content(&self, name: &str, content: Vec<u8>) {
        let mut state = self.lock();
        let file = state.names[name];
        state.files[file] = FileState { durable: content.clone(), content, unsynced: Vec::new() };
    }

    /// Returns an independent copy.
    pub fn fork(&self) -> CrashDisk {
        let copy = CrashDisk::new(Forgets::Nothing);
        for name in self.names().expect("this disk lists") {
            copy.create(&name).expect("a new name");
            copy.set_content(&name, self.content(&name));
        }
        copy.sync_dir().expect("this disk syncs");
        copy
    }
}

fn keep_some(content: &mut Vec<u8>, op: &FileOp, rng: &mut Rng) {
    match op {
        FileOp::Truncate { len } => {
            if rng.one_in(2) {
                content.resize(*len, 0);
            }
        }
        FileOp::Write { offset, bytes } => {
            let sector = [1, 4, 16, 512][rng.below(4) as usize];
            let whole = rng.one_in(4);
            for (i, part) in bytes.chunks(sector).enumerate() {
                if whole || rng.one_in(2) {
                    put(content, offset + i * sector, part);
                }
            }
            // File systems may record the new length before the data.
            if rng.one_in(2) {
                let len = content.len().max(offset + bytes.len());
                content.resize(len, 0);
            }
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(bytes);
}

fn apply(names: &mut BTreeMap<String, usize>, op: &DirOp) {
    match op {
        DirOp::Link { name, file } => {
            names.insert(name.clone(), *file);
        }
        DirOp::Rename { from, to, file } => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        DirOp::Remove { name } => {
            names.remove(name);
        }
    }
}

impl State {
    /// Called before each changing call. A call within which the process dies still takes effect.
    fn step(&mut self) -> Died {
        match &mut self.calls_left {
            Some(0) => Died::Before,
            Some(1) => {
                self.calls_left = Some(0);
                Died::Within
            }
            Some(left) => {
                *left -= 1;
                Died::No
            }
            None => Died::No,
        }
    }

    fn link(&mut self, op: DirOp) -> io::Result<()> {
        let died = self.step();
        if died != Died::Before {
            apply(&mut self.names, &op);
            self.unsynced.push(op);
        }
        died.check()
    }

    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].content.len()).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Died {
    No,
    Within,
    Before,
}

impl Died {
    fn check(self) -> io::Result<()> {
        if self == Died::No { Ok(()) } else { Err(io::Error::other("the process is dead")) }
    }
}

impl Disk for CrashDisk {
    type File = CrashFile;

    fn path(&self, name: &str) -> PathBuf {
        Path::new("crash-disk").join(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        Ok(self.read(name)?.len() as u64)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.lock();
        let file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.files[*file].content.clone())
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let content = self.read(name)?;
        let bytes = content.get(offset as usize..).and_then(|rest| rest.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn create(&self, name: &str) -> io::Result<CrashFile> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(FileState::default());
        state.link(DirOp::Link { name: name.into(), file })?;
        Ok(CrashFile { disk: self.clone(), file })
    }

    fn open(&self, name: &str) -> io::Result<CrashFile> {
        let file = *self.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(CrashFile { disk: self.clone(), file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.link(DirOp::Rename { from: from.into(), to: to.into(), file })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.link(DirOp::Remove { name: name.into() })
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.step().check()?;
        if state.forgets != Forgets::SyncDir {
            state.unsynced.clear();
            state.durable_names = state.names.clone();
        }
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let state = self.lock();
        if state.hides_free {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used()) as u64))
    }
}

impl DiskFile for CrashFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        if let Some(kind) = state.write_fails {
            return Err(kind.into());
        }
        let died = state.step();
        let room = state.capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(state.used()));
        let fits = &bytes[..bytes.len().min(room)];
        if died != Died::Before {
            let file = &mut state.files[self.file];
            put(&mut file.content, offset as usize, fits);
            file.unsynced.push(FileOp::Write { offset: offset as usize, bytes: fits.to_vec() });
        }
        died.check()?;
        if fits.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step().check()?;
        if state.hold_syncs {
            state.syncs_held += 1;
            self.disk.changed.notify_all();
            while state.hold_syncs {
                state = self.disk.changed.wait(state).expect("no test panics with it");
            }
            state.syncs_held -= 1;
        }
        if let Some(kind) = state.sync_fails {
            return Err(kind.into());
        }
        if state.forgets != Forgets::SyncFile {
            let file = &mut state.files[self.file];
            file.unsynced.clear();
            file.durable = file.content.clone();
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let died = state.step();
        if died != Died::Before {
            let file = &mut state.files[self.file];
            file.content.resize(len as usize, 0);
            file.unsynced.push(FileOp::Truncate { len: len as usize });
        }
        drop(state);
        died.check()?;
        self.sync()
    }

    fn settle(&mut self) -> io::Result<()> {
        self.sync()
    }
}
