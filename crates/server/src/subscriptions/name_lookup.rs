//! Resolves host names by the system, a few at a time. A lookup whose name servers are silent outlives its caller;
//! its place comes free when the lookup ends, and not before.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::{
    net::lookup_host,
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::request::limits::LOOKUP_TIMEOUT;

/// Lookups that share their places.
#[derive(Debug)]
pub(crate) struct Lookups {
    places: Arc<Semaphore>,
}

impl Lookups {
    /// As many at a time.
    pub(crate) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)) }
    }

    /// The addresses that a name, or an address, stands for now.
    ///
    /// # Errors
    /// It stands for nothing, or [`LOOKUP_TIMEOUT`] is over: nobody knows, or there was no place.
    pub(crate) async fn ask(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host: Box<str> = host.into();
        self.within_time(async move { Ok(lookup_host((&*host, port)).await?.collect()) }).await
    }

    async fn within_time<F>(&self, lookup: F) -> io::Result<Vec<SocketAddr>>
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let end = Instant::now() + LOOKUP_TIMEOUT;
        let place = timeout_at(end, self.places.clone().acquire_owned()).await.map_err(late)?;
        let looked_up = tokio::spawn(async move {
            let _place = place;
            lookup.await
        });
        timeout_at(end, looked_up).await.map_err(late)?.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// A lookup that lasts until it is told to end.
    fn lasting() -> (oneshot::Sender<()>, impl Future<Output = io::Result<Vec<SocketAddr>>>) {
        let (end, ended) = oneshot::channel();
        (end, async move {
            let _ = ended.await;
            Ok(Vec::new())
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_has_its_place_until_it_ends_though_nobody_waits_for_it_any_more() {
        let lookups = Lookups::new(1);
        let (end, lookup) = lasting();
        let error = lookups.within_time(lookup).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let never = lookups.within_time(async { unreachable!("there is no place") }).await;
        assert_eq!(never.unwrap_err().kind(), io::ErrorKind::TimedOut);
        end.send(()).unwrap();
        assert_eq!(lookups.within_time(async { Ok(Vec::new()) }).await.unwrap(), []);
    }
}
