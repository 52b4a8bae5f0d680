//! Requests to servers elsewhere: each on a connection of its own, over TLS with the trust store of the machine, to addresses that
//! the caller has looked up and checked. Redirects are not followed. It does not know what is asked.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::{Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
};
use tokio_rustls::TlsConnector;

/// The reason why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientFailure {
    /// The server was not reached.
    #[error("not reached: {0}")]
    Io(#[from] io::Error),
    /// The server does not speak HTTP.
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
}

/// The answer, and the connection on which its body comes.
pub(crate) struct ClientAnswer {
    pub(crate) response: Response<Incoming>,
    pub(crate) connection: AbortOnDrop,
}

/// Ends a connection with its user.
pub(crate) struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends requests. It reads the trust store of the machine when it needs it first.
#[derive(Debug, Default)]
pub(crate) struct HttpClient {
    tls: OnceCell<Arc<ClientConfig>>,
}

impl HttpClient {
    /// The answer to a request of the server at `addresses`, which is `host`. The caller limits the time.
    ///
    /// # Errors
    /// The server was not reached, does not prove to be `host`, or does not speak HTTP.
    pub(crate) async fn send(
        &self,
        is_tls: bool,
        host: &str,
        addresses: &[SocketAddr],
        request: Request<Full<Bytes>>,
    ) -> Result<ClientAnswer, ClientFailure> {
        let stream = TcpStream::connect(addresses).await?;
        let _ = stream.set_nodelay(true);
        if !is_tls {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let tls = TlsConnector::from(self.tls.get_or_try_init(trust_store).await?.clone());
        exchange(tls.connect(name, stream).await?, request).await
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<ClientAnswer, ClientFailure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    let response = sender.send_request(request).await?;
    Ok(ClientAnswer { response, connection })
}

/// Trusts whom this machine trusts.
async fn trust_store() -> io::Result<Arc<ClientConfig>> {
    let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs);
    let found = found.await.map_err(io::Error::other)?;
    for error in &found.errors {
        tracing::warn!(%error, "a certificate that this machine trusts cannot be read");
    }
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, "this machine trusts no certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
