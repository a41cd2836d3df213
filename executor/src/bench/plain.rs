//! The servers to compare with: the same libraries, the same bytes in and out, and nothing in between.

use super::BenchError;
use crate::gateway::proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use crate::gateway::{json::HEADER_LENGTH, proto};
use actix_web::{App, HttpResponse, HttpServer, dev::ServerHandle, web};
use bytes::Bytes;
use futures::stream::BoxStream;
use proto::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Threads of the HTTP server, as the agent's.
const WORKERS: usize = 2;

/// An answer that was once given.
#[derive(Clone, Debug)]
pub(super) struct CannedAnswer {
    /// `Content-Type`.
    pub(super) content_type: String,
    /// Length of the JSON, if tensors follow it.
    pub(super) json_length: Option<String>,
    /// The body.
    pub(super) body: Bytes,
}

/// An actix server that reads bodies and gives one answer; it ends when it is dropped.
pub(super) struct Http {
    pub(super) address: SocketAddr,
    stopping: ServerHandle,
}

impl Http {
    pub(super) fn start(answer: CannedAnswer) -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let app = move || {
            let answer = answer.clone();
            let give = move |_body: Bytes| {
                let mut response = HttpResponse::Ok();
                response.content_type(answer.content_type.as_str());
                if let Some(length) = &answer.json_length {
                    response.insert_header((HEADER_LENGTH, length.as_str()));
                }
                std::future::ready(response.body(answer.body.clone()))
            };
            App::new().route("/v2/models/{pipeline}/infer", web::post().to(give))
        };
        let (up, started) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async {
                let server = HttpServer::new(app).workers(WORKERS).tcp_nodelay(true).disable_signals().listen(listener);
                match server.map(HttpServer::run) {
                    Ok(server) => {
                        // The starting thread waits for this.
                        let _there = up.send(Ok(server.handle()));
                        if let Err(error) = server.await {
                            tracing::error!(%error, "the plain server ended");
                        }
                    }
                    Err(error) => {
                        let _there = up.send(Err(error));
                    }
                }
            });
        });
        let stopping = started.recv().map_err(|_| BenchError::Agents("the plain HTTP server died".into()))??;
        Ok(Self { address, stopping })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // The order is sent when the future is made; nobody waits for its end.
        drop(self.stopping.stop(false));
    }
}

/// A tonic server that gives one answer; it ends when it is dropped.
pub(super) struct Grpc {
    pub(super) address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Grpc {
    pub(super) fn start(answer: ModelInferResponse) -> Result<Self, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stopped, ended) = (stop.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let service = GrpcInferenceServiceServer::new(NoOp { answer });
                let server = tonic::transport::Server::builder().http2_adaptive_window(Some(true)).add_service(service);
                let serving = server.serve_with_incoming_shutdown(incoming, stopped.cancelled_owned());
                tokio::select! {
                    end = serving => if let Err(error) = end { tracing::error!(%error, "the plain server ended") },
                    () = ended.cancelled() => {}
                }
            });
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Grpc {
    fn drop(&mut self) {
        self.stop.cancel();
        // A panic there has been printed.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

struct NoOp {
    answer: ModelInferResponse,
}

type Replied<T> = Result<Response<T>, Status>;

fn absent<T>() -> Replied<T> {
    Err(Status::unimplemented("this server only infers"))
}

#[tonic::async_trait]
impl GrpcInferenceService for NoOp {
    async fn model_infer(&self, _: Request<ModelInferRequest>) -> Replied<ModelInferResponse> {
        Ok(Response::new(self.answer.clone()))
    }

    async fn server_live(&self, _: Request<proto::ServerLiveRequest>) -> Replied<proto::ServerLiveResponse> {
        absent()
    }

    async fn server_ready(&self, _: Request<proto::ServerReadyRequest>) -> Replied<proto::ServerReadyResponse> {
        absent()
    }

    async fn model_ready(&self, _: Request<proto::ModelReadyRequest>) -> Replied<proto::ModelReadyResponse> {
        absent()
    }

    async fn server_metadata(&self, _: Request<proto::ServerMetadataRequest>) -> Replied<proto::ServerMetadataResponse> {
        absent()
    }

    async fn model_metadata(&self, _: Request<proto::ModelMetadataRequest>) -> Replied<proto::ModelMetadataResponse> {
        absent()
    }

    async fn model_config(&self, _: Request<proto::ModelConfigRequest>) -> Replied<proto::ModelConfigResponse> {
        absent()
    }

    async fn model_statistics(&self, _: Request<proto::ModelStatisticsRequest>) -> Replied<proto::ModelStatisticsResponse> {
        absent()
    }

    async fn repository_index(&self, _: Request<proto::RepositoryIndexRequest>) -> Replied<proto::RepositoryIndexResponse> {
        absent()
    }

    type ModelStreamInferStream = BoxStream<'static, Result<ModelStreamInferResponse, Status>>;

    async fn model_stream_infer(&self, _: Request<Streaming<ModelInferRequest>>) -> Replied<Self::ModelStreamInferStream> {
        absent()
    }
}
