//! What stands between stores and their server, and knows a commit when it sees one.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

use crate::Result;
use crate::plan;
use crate::server::{Server, USER};

const SOCKET: &str = ".s.PGSQL.5432";
const BUFFER: usize = 16 << 10;

/// What becomes of the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is done, and its answer is lost with the connection.
    Answer,
    /// It never arrives.
    Commit,
}

#[derive(Debug, Default)]
struct State {
    armed: Mutex<Option<Loss>>,
    lost: AtomicUsize,
}

/// A way to the server that loses things.
#[derive(Debug)]
pub(super) struct Proxy {
    folder: TempDir,
    state: Arc<State>,
}

impl Proxy {
    pub(super) fn start(server: &Server) -> Result<Self> {
        let folder = plan::fast_folder()?;
        let listener = UnixListener::bind(folder.path().join(SOCKET)).map_err(|error| format!("a proxy: {error}"))?;
        let (state, behind) = (Arc::new(State::default()), server.folder().join(SOCKET));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Whoever comes while the server is away is turned away.
                let Ok(server) = UnixStream::connect(&behind) else { continue };
                let state = Arc::clone(&shared);
                std::thread::spawn(move || pass(client, server, &state));
            }
        });
        Ok(Self { folder, state })
    }

    /// The address of a store behind it.
    pub(super) fn address(&self, of: &Path) -> Result<PathBuf> {
        let (_, schema) = of.to_str().and_then(|text| text.split_once("&schema=")).ok_or("no store on a server")?;
        let folder = self.folder.path().display();
        Ok(PathBuf::from(format!("postgres://{USER}@/postgres?host={folder}&schema={schema}")))
    }

    /// Something is to happen to the next commit.
    pub(super) fn arm(&self, loss: Loss) {
        *self.state.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
    }

    /// What has been lost so far.
    pub(super) fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

/// Passes bytes on in both directions, until a commit meets its fate.
fn pass(mut client: UnixStream, mut server: UnixStream, state: &State) {
    let (Ok(back), Ok(to_client)) = (server.try_clone(), client.try_clone()) else { return };
    let silent = Arc::new(AtomicBool::new(false));
    let muted = Arc::clone(&silent);
    let answers = std::thread::spawn(move || answer(back, to_client, &muted));
    let mut buffer = [0; BUFFER];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let bytes = buffer.get(..read).unwrap_or_default();
        let is_commit = bytes.windows(7).any(|window| window == b"COMMIT\0");
        let loss = if is_commit { state.armed.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None };
        silent.fetch_or(loss == Some(Loss::Answer), Ordering::SeqCst);
        if loss == Some(Loss::Commit) || server.write_all(bytes).is_err() {
            state.lost.fetch_add(usize::from(loss.is_some()), Ordering::SeqCst);
            break;
        }
        if loss == Some(Loss::Answer) {
            // The answer has come, and nobody gets it.
            drop(answers.join());
            state.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
    drop(server.shutdown(std::net::Shutdown::Both));
    drop(client.shutdown(std::net::Shutdown::Both));
}

fn answer(mut server: UnixStream, mut client: UnixStream, silent: &AtomicBool) {
    let mut buffer = [0; BUFFER];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        let bytes = buffer.get(..read).unwrap_or_default();
        if silent.load(Ordering::SeqCst) || client.write_all(bytes).is_err() {
            break;
        }
    }
    drop(client.shutdown(std::net::Shutdown::Both));
}
