//! What Ctrl-C does to a verb that goes on until it is stopped: the first lets it finish what it has
//! begun, and the second ends it at once, whatever it waits for.

use std::{process::exit, sync::mpsc, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// What shells report of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Listens from now on: what it returns waits for the first Ctrl-C, and the second ends the program.
pub fn interrupted() -> impl Future<Output = ()> {
    let heard = listen();
    async {
        if heard.await.is_err() {
            std::future::pending().await
        }
    }
}

/// The same for who looks now and then: what it returns says whether the first Ctrl-C has come.
pub fn is_interrupted() -> impl FnMut() -> bool {
    let (mut heard, mut has_come) = (listen(), false);
    move || {
        has_come |= heard.try_recv().is_ok();
        has_come
    }
}

fn listen() -> oneshot::Receiver<()> {
    let (first, heard) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    // One that listens hears both, also when the second comes before anybody waits for it. On a thread of
    // its own it does so while the verb waits for whoever reads its standard output.
    let listen = move || {
        let Ok(runtime) = Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            let Ok(mut interrupts) = signal(SignalKind::interrupt()) else { return };
            let _ = ready.send(());
            interrupts.recv().await;
            let _ = first.send(());
            interrupts.recv().await;
            exit(INTERRUPTED)
        });
    };
    // Where there is nothing to listen with, Ctrl-C ends the program as it does any other.
    let _ = thread::Builder::new().name("interrupts".into()).spawn(listen);
    let _ = is_ready.recv();
    heard
}
