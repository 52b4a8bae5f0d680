//! A network that tests break: proxies of TCP connections, each between one side that connects and one address. Each
//! direction of a link can be held back, delayed or slowed down, and all connections of a link can be broken, which loses
//! whatever is under way. Knows bytes only.

use std::{
    io,
    net::TcpListener as Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime,
    sync::{mpsc, watch},
    task::{self, LocalSet},
    time::{Instant, sleep, sleep_until},
};

const CHUNK_BYTES: usize = 16 << 10;

/// How many chunks of a direction may be under way: beyond that the sender has to wait.
const CHUNKS_UNDER_WAY: usize = 64;

/// How bytes flow in one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// At once.
    #[default]
    Open,
    /// Not at all: they arrive when it is open again, if the connection is there then.
    Held,
    /// So much later.
    Late(Duration),
    /// So many bytes a second.
    Slow(u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// From the side that connects, and to it.
    flows: [Flow; 2],
    /// How often its connections were broken.
    breaks: u64,
}

/// A link: it passes connections to its own address on to another.
#[derive(Debug)]
pub struct Link {
    /// Its own address.
    pub address: String,
    state: watch::Sender<State>,
    connections: Arc<AtomicU64>,
}

impl Link {
    /// Lets bytes flow like this, from the side that connects and to it.
    pub fn set(&self, flows: [Flow; 2]) {
        self.state.send_modify(|state| state.flows = flows);
    }

    /// How many connections it has carried.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Breaks all connections: whatever is under way does not arrive.
    pub fn break_all(&self) {
        self.state.send_modify(|state| state.breaks += 1);
    }
}

/// A link that is to be served.
struct NewLink {
    bound: Bound,
    target: String,
    state: watch::Receiver<State>,
    connections: Arc<AtomicU64>,
}

/// The thread that serves all links. Dropping it ends them.
pub struct Network {
    links: Option<mpsc::UnboundedSender<NewLink>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Without links.
    pub fn new() -> Self {
        let (links, new_links) = mpsc::unbounded_channel();
        let thread = thread::Builder::new().name("network".into()).spawn(|| serve(new_links));
        Self { links: Some(links), thread: Some(thread.unwrap()) }
    }

    /// A link to this address, which need not be there yet.
    pub fn link(&self, target: &str) -> Link {
        let bound = Bound::bind("127.0.0.1:0").unwrap();
        bound.set_nonblocking(true).unwrap();
        let address = bound.local_addr().unwrap().to_string();
        let (state, seen) = watch::channel(State::default());
        let connections = Arc::default();
        let new = NewLink {
            bound,
            target: target.to_owned(),
            state: seen,
            connections: Arc::clone(&connections),
        };
        let links = self.links.as_ref().expect("it is not dropped");
        links.send(new).unwrap_or_else(|_| panic!("the network has ended"));
        Link { address, state, connections }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.links.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn serve(mut new_links: mpsc::UnboundedReceiver<NewLink>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Its tasks end with it.
    LocalSet::new().block_on(&runtime, async {
        while let Some(link) = new_links.recv().await {
            task::spawn_local(accept(link));
        }
    });
}

async fn accept(link: NewLink) {
    let listener = TcpListener::from_std(link.bound).unwrap();
    // A connection that is gone before it is accepted is none.
    loop {
        if let Ok((near, _)) = listener.accept().await {
            link.connections.fetch_add(1, Relaxed);
            task::spawn_local(carry(near, link.target.clone(), link.state.clone()));
        }
    }
}

/// Carries one connection until both sides have ended it, or it is broken.
async fn carry(near: TcpStream, target: String, state: watch::Receiver<State>) {
    let breaks = state.borrow().breaks;
    let mut seen = state.clone();
    let both = async move {
        // No process listens there: the near side is told by the end of its connection.
        let far = TcpStream::connect(target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::try_join!(
            pass(near_read, far_write, (state.clone(), breaks), 0),
            pass(far_read, near_write, (state, breaks), 1),
        )?;
        io::Result::Ok(())
    };
    tokio::select! {
        _ended = both => {}
        _broken = seen.wait_for(|state| state.breaks != breaks) => {}
    }
}

/// Passes the bytes of one direction on, and then their end, and nothing once the link has had more breaks.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (mut state, breaks): (watch::Receiver<State>, u64),
    direction: usize,
) -> io::Result<()> {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_UNDER_WAY);
    let read = async {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let length = from.read(&mut chunk).await?;
            chunk.truncate(length);
            // The end travels as bytes do.
            let is_taken = sender.send((Instant::now(), chunk)).await.is_ok();
            if !is_taken || length == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let write = async {
        while let Some((came_at, chunk)) = chunks.recv().await {
            let open = state.wait_for(|state| state.flows[direction] != Flow::Held).await;
            // The link is gone with its test.
            let Ok(flow) = open.map(|state| state.flows[direction]) else { return Ok(()) };
            match flow {
                Flow::Open | Flow::Held => {}
                Flow::Late(delay) => sleep_until(came_at + delay).await,
                Flow::Slow(bytes_per_second) => {
                    let seconds = chunk.len() as f64 / f64::from(bytes_per_second);
                    sleep(Duration::from_secs_f64(seconds)).await;
                }
            }
            // It may be open only since the break.
            if state.borrow().breaks != breaks {
                return Ok(());
            }
            if chunk.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&chunk).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(|((), ())| ())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;
    use crate::bounds::BOUND;

    /// A link, and both ends of a connection over it.
    fn connected(network: &Network) -> (Link, TcpStream, TcpStream) {
        let target = Bound::bind("127.0.0.1:0").unwrap();
        let link = network.link(&target.local_addr().unwrap().to_string());
        let near = TcpStream::connect(&link.address).unwrap();
        let (far, _) = target.accept().unwrap();
        for end in [&near, &far] {
            end.set_read_timeout(Some(BOUND)).unwrap();
        }
        (link, near, far)
    }

    #[track_caller]
    fn passes(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
        from.write_all(bytes).unwrap();
        let mut came = vec![0; bytes.len()];
        to.read_exact(&mut came).unwrap();
        assert_eq!(came, bytes);
    }

    #[test]
    fn bytes_pass_both_ways_and_each_end_is_passed_on() {
        let network = Network::new();
        let (link, mut near, mut far) = connected(&network);
        for flow in [Flow::Open, Flow::Late(Duration::from_millis(2)), Flow::Slow(1_000_000)] {
            link.set([flow; 2]);
            passes(&mut near, &mut far, &[7; 100_000]);
            passes(&mut far, &mut near, b"answer");
        }
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        passes(&mut far, &mut near, b"the other direction goes on");
        drop(far);
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn what_is_held_in_one_direction_comes_once_it_is_open_and_the_other_direction_goes_on() {
        let network = Network::new();
        let (link, mut near, mut far) = connected(&network);
        link.set([Flow::Held, Flow::Open]);
        near.write_all(b"held").unwrap();
        passes(&mut far, &mut near, b"not held");
        far.set_nonblocking(true).unwrap();
        let error = far.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        far.set_nonblocking(false).unwrap();
        link.set([Flow::Open; 2]);
        let mut came = [0; 4];
        far.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"held");
    }

    #[test]
    fn a_break_ends_both_sides_and_loses_what_was_under_way() {
        let network = Network::new();
        let (link, mut near, mut far) = connected(&network);
        link.set([Flow::Held; 2]);
        near.write_all(b"lost").unwrap();
        link.break_all();
        link.set([Flow::Open; 2]);
        let mut came = Vec::new();
        for end in [&mut near, &mut far] {
            // Reset or closed: there are no bytes.
            let _ = end.read_to_end(&mut came);
        }
        assert!(came.is_empty(), "{came:?}");
    }
}
