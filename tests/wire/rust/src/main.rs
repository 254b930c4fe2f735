//! A DRA driver on tonic: `wire-driver NAME REGISTRATION ENDPOINT [health]`. It does what the name of a
//! call's first claim says and tells what it sees as JSON lines; tests/wire/harness.py has the list.

mod codec;
mod messages;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codec::Raw;
use prost::Message;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::{KeyAndValueRef, MetadataMap, MetadataValue};
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Bytes = Vec<u8>;

struct Driver {
    name: String,
    endpoint: String,
    health: bool,
}

fn encoded(bytes: &[u8]) -> String {
    format!("\"{}\"", STANDARD.encode(bytes))
}

fn note(method: &str, metadata: &MetadataMap, body: &[u8]) {
    let pairs: Vec<String> = metadata
        .iter()
        .map(|pair| match pair {
            KeyAndValueRef::Ascii(key, value) => (key.to_string(), value.as_bytes().to_vec()),
            KeyAndValueRef::Binary(key, value) => (
                key.to_string(),
                value.to_bytes().map(|b| b.to_vec()).unwrap_or_default(),
            ),
        })
        .map(|(key, value)| format!("[\"{key}\",{}]", encoded(&value)))
        .collect();
    let left = metadata
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_suffix('m')?.parse::<i64>().ok())
        .unwrap_or(-1);
    println!(
        "{{\"event\":\"call\",\"method\":\"{method}\",\"leftMs\":{left},\"metadata\":[{}],\"body\":{}}}",
        pairs.join(","),
        encoded(body)
    );
}

/// Says so when the call it belongs to is dropped, which is how hyper tells of a cancelled one.
struct Cancelled(String);

impl Drop for Cancelled {
    fn drop(&mut self) {
        println!("{{\"event\":\"cancelled\",\"claim\":\"{}\"}}", self.0);
    }
}

impl Driver {
    fn info(&self) -> Bytes {
        let mut versions = vec!["v1.DRAPlugin".to_string()];
        if self.health {
            versions.push("v1.DRAResourceHealth".to_string());
        }
        let info = messages::PluginInfo {
            kind: "DRAPlugin".into(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: versions,
        };
        info.encode_to_vec()
    }

    async fn unary(
        &self,
        method: &str,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        match method.rsplit('/').next().unwrap_or("") {
            "GetInfo" => Ok(Response::new(self.info())),
            "NotifyRegistrationStatus" => {
                let registered = request.get_ref().first() == Some(&8);
                println!("{{\"event\":\"notified\",\"registered\":{registered},\"error\":\"\"}}");
                if registered {
                    Ok(Response::new(vec![]))
                } else {
                    Err(Status::unknown("refused"))
                }
            }
            "Anything" => Ok(Response::new(request.into_inner())),
            "NodeUnprepareResources" => unprepare(request),
            _ => prepare(method, request).await,
        }
    }
}

fn failure(size: usize) -> Status {
    let mut text = "é%\n".repeat(3);
    text.push_str(&"x".repeat(size.saturating_sub(text.len())));
    let details = messages::Refusal {
        code: 9,
        message: text.clone(),
        details: vec![b"\x0a\x04some".to_vec()],
    }
    .encode_to_vec();
    Status::with_details(Code::FailedPrecondition, text, details.into())
}

fn claims(request: &Request<Bytes>) -> Result<Vec<messages::Claim>, Status> {
    messages::Request::decode(request.get_ref().as_slice())
        .map(|read| read.claims)
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

fn word(claims: &[messages::Claim]) -> (String, usize) {
    let name = claims
        .first()
        .map(|claim| claim.name.clone())
        .unwrap_or_default();
    let (word, number) = name.split_once('-').unwrap_or((&name, ""));
    (word.to_string(), number.parse().unwrap_or(0))
}

fn unprepare(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    let claims = claims(&request)?;
    if let ("fail", number) = (word(&claims).0.as_str(), word(&claims).1) {
        return Err(failure(number));
    }
    Ok(Response::new(answer(&claims, None)))
}

async fn prepare(method: &str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    note(method, request.metadata(), request.get_ref());
    let claims = claims(&request)?;
    let (word, number) = word(&claims);
    let mut cdi = "example.com/device=gpu-0".to_string();
    match word.as_str() {
        "fail" => return Err(failure(number)),
        "slow" => {
            let _told = Cancelled(claims[0].name.clone());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        "wait" => tokio::time::sleep(Duration::from_millis(number as u64)).await,
        "large" => cdi = "x".repeat(number),
        _ => {}
    }
    let mut response = Response::new(answer(&claims, Some(cdi)));
    if word == "meta" {
        let asked = request.metadata();
        if let Some(value) = asked.get("x-text") {
            response.metadata_mut().insert("x-text", value.clone());
        }
        if let Some(value) = asked.get_bin("x-bytes-bin").and_then(|v| v.to_bytes().ok()) {
            response
                .metadata_mut()
                .insert_bin("x-bytes-bin", MetadataValue::from_bytes(&value));
        }
    }
    Ok(response)
}

fn answer(claims: &[messages::Claim], cdi: Option<String>) -> Bytes {
    let devices = cdi.map(|id| messages::Device {
        pool_name: "pool".into(),
        device_name: "gpu-0".into(),
        cdi_device_ids: vec![id],
    });
    let one = messages::Prepared {
        devices: devices.into_iter().collect(),
    };
    let claims = claims
        .iter()
        .map(|claim| (claim.uid.clone(), one.clone()))
        .collect();
    messages::Response {
        claims,
        later: "later".into(),
    }
    .encode_to_vec()
}

/// One method of one service, as tonic's generated code would have it.
#[derive(Clone)]
struct Method(Arc<Driver>, String);

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = Boxed<Result<Response<Bytes>, Status>>;
    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Method(driver, method) = self.clone();
        Box::pin(async move { driver.unary(&method, request).await })
    }
}

impl StreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = ReceiverStream<Result<Bytes, Status>>;
    type Future = Boxed<Result<Response<Self::ResponseStream>, Status>>;
    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (send, receive) = mpsc::channel(1);
        let health = self.1.ends_with("NodeWatchResources");
        let mut input = request.into_inner();
        tokio::spawn(async move {
            if health {
                // devices { device { pool "pool", device "gpu-0" } health HEALTHY }
                let report = b"\x0a\x11\x0a\x0d\x0a\x04pool\x12\x05gpu-0\x10\x01".to_vec();
                for _ in 0..3 {
                    let _ = send.send(Ok(report.clone())).await;
                }
                send.closed().await;
                println!("{{\"event\":\"cancelled\",\"claim\":\"health\"}}");
                return;
            }
            while let Some(Ok(message)) = input.next().await {
                for _ in 0..2 {
                    let _ = send.send(Ok(message.clone())).await;
                }
            }
            let mut status = Status::failed_precondition("ends so");
            status
                .metadata_mut()
                .insert("x-after", MetadataValue::from_static("last"));
            let _ = send.send(Err(status)).await;
        });
        Box::pin(async move { Ok(Response::new(ReceiverStream::new(receive))) })
    }
}

macro_rules! service {
    ($type:ident, $name:literal, $unary:expr, $streams:expr) => {
        #[derive(Clone)]
        struct $type(Arc<Driver>);
        impl NamedService for $type {
            const NAME: &'static str = $name;
        }
        impl Service<http::Request<Body>> for $type {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = Boxed<Result<Self::Response, Infallible>>;
            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                let path = request.uri().path().to_string();
                let last = path.rsplit('/').next().unwrap_or("").to_string();
                let method = Method(self.0.clone(), path);
                let (unary, streams): (&[&str], &[&str]) = ($unary, $streams);
                let (is_unary, is_stream) = (unary.contains(&&*last), streams.contains(&&*last));
                Box::pin(async move {
                    let mut grpc = Grpc::new(Raw);
                    Ok(if is_unary {
                        grpc.unary(method, request).await
                    } else if is_stream {
                        grpc.streaming(method, request).await
                    } else {
                        Status::unimplemented("no such method").into_http()
                    })
                })
            }
        }
    };
}

service!(
    Registration,
    "pluginregistration.Registration",
    &["GetInfo", "NotifyRegistrationStatus"],
    &[]
);
service!(
    Plugin,
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    &["NodePrepareResources", "NodeUnprepareResources"],
    &[]
);
service!(Health, "v1.DRAResourceHealth", &[], &["NodeWatchResources"]);
service!(Later, "example.v7.Later", &["Anything"], &["Chat"]);

fn listen(path: &str) -> UnixListenerStream {
    let _ = std::fs::remove_file(path);
    UnixListenerStream::new(UnixListener::bind(path).expect("the socket can be bound"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, registration, endpoint, rest @ ..] = arguments.as_slice() else {
        panic!("usage: wire-driver NAME REGISTRATION ENDPOINT [health]");
    };
    let health = !rest.is_empty();
    let driver = Arc::new(Driver {
        name: name.clone(),
        endpoint: endpoint.clone(),
        health,
    });
    let leave = Arc::new(Notify::new());
    let left = leave.clone();
    let mut router = Server::builder()
        .add_service(Plugin(driver.clone()))
        .add_service(Later(driver.clone()));
    if health {
        router = router.add_service(Health(driver.clone()));
    }
    let endpoint = listen(endpoint);
    let registration = listen(registration);
    tokio::spawn(async move {
        router
            .serve_with_incoming_shutdown(endpoint, async move { left.notified().await })
            .await
            .expect("the endpoint is served");
        println!("{{\"event\":\"stopped\"}}");
    });
    tokio::spawn(async move {
        let server = Server::builder().add_service(Registration(driver));
        server
            .serve_with_incoming(registration)
            .await
            .expect("the registration is served");
    });
    println!("{{\"event\":\"ready\"}}");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = input.next_line().await {
        if line == "goaway" {
            leave.notify_one();
        }
    }
}
