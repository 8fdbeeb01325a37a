//! A gRPC service that charges once, however often its client calls.
//!
//! ```text
//! cargo run -p onlyonce --features memory --example tonic
//! ```
//!
//! It starts a server, calls it twice with one key, and ends. The messages and the service are written out where a
//! project would have `tonic-prost-build` generate them: the layer does not care.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::uri::PathAndQuery;
use onlyonce::scope::Principal;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Policy};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

#[derive(Clone, PartialEq, prost::Message)]
struct Charge {
    #[prost(string, tag = "1")]
    customer: String,
    #[prost(uint64, tag = "2")]
    cents: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Receipt {
    #[prost(uint64, tag = "1")]
    number: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let once = Once::new(MemoryStore::new());
    // gRPC calls are POST requests, and metadata are headers: `idempotency-key` is the key.
    let layer = once.layer(caller, Policy::default());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let server = Server::builder().layer(layer).add_service(Checkout::default());
    tokio::spawn(server.serve_with_incoming(incoming));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let first = charge(channel.clone()).await?;
    println!("charged: receipt {}", first.get_ref().number);
    let again = charge(channel).await?;
    println!("again: receipt {}", again.get_ref().number);
    assert_eq!(first.get_ref(), again.get_ref(), "the retry gets the first receipt");
    assert!(again.metadata().contains_key("idempotent-replayed"));
    Ok(())
}

/// The caller, by the API key in the metadata. Without one a keyed call is refused: strangers must not share keys.
fn caller(head: &Parts) -> Option<Principal> {
    let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    Some(Principal::of("api-key", api_key.as_bytes()))
}

/// What a client does: the same key with every retry of one charge.
async fn charge(channel: Channel) -> Result<Response<Receipt>, Box<dyn std::error::Error>> {
    let mut request = Request::new(Charge { customer: "ada".to_owned(), cents: 7998 });
    request.metadata_mut().insert("idempotency-key", "order-4711-charge".parse()?);
    request.metadata_mut().insert("x-api-key", "key-of-ada".parse()?);
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let path = PathAndQuery::from_static("/shop.Checkout/Charge");
    Ok(client.unary(request, path, ProstCodec::<Charge, Receipt>::default()).await?)
}

/// The service, as generated code would have it.
#[derive(Clone, Debug, Default)]
struct Checkout {
    receipts: Arc<AtomicU64>,
}

impl NamedService for Checkout {
    const NAME: &'static str = "shop.Checkout";
}

impl Service<http::Request<tonic::body::Body>> for Checkout {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let method = ChargeMethod(self.clone());
        Box::pin(async move {
            let codec = ProstCodec::<Receipt, Charge>::default();
            Ok(tonic::server::Grpc::new(codec).unary(method, request).await)
        })
    }
}

/// Charges, and numbers the receipts: a second execution would show.
struct ChargeMethod(Checkout);

impl UnaryService<Charge> for ChargeMethod {
    type Response = Receipt;
    type Future = BoxFuture<'static, Result<Response<Receipt>, Status>>;

    fn call(&mut self, _: Request<Charge>) -> Self::Future {
        let number = self.0.receipts.fetch_add(1, Ordering::Relaxed) + 1;
        Box::pin(async move { Ok(Response::new(Receipt { number })) })
    }
}
