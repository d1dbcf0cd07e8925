//! Traces of the path of each call, sent by OTLP over HTTP to where OpenTelemetry's usual variables say.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::Registry;

use crate::fault::Fault;

/// Either of them, set, turns traces on.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// What whoever reads the traces calls us, unless told otherwise by this variable.
const NAMED: (&str, &str) = ("OTEL_SERVICE_NAME", "countersign");
/// How long the last spans may take when the program ends.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// Sends spans until it is ended.
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Begins, where the environment says whom to send to.
    pub(super) fn begin(runtime: &Handle) -> Result<Option<Traces>, Fault> {
        if !ENDPOINTS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
            return Ok(None);
        }
        // The sender's HTTP client wants it; a second try finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = Otlp::builder().with_http().build();
        let exporter = exporter.map_err(|error| Fault::usage(format!("traces cannot be sent: {error}")))?;
        let exporter = OnRuntime { exporter, runtime: runtime.clone() };
        let (variable, name) = NAMED;
        let resource = match std::env::var_os(variable) {
            Some(_) => Resource::builder(),
            None => Resource::builder().with_service_name(name),
        };
        let provider = SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter);
        Ok(Some(Traces(provider.build())))
    }

    /// Takes the spans of calls and nothing else: no events, which hold words.
    pub(super) fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer("countersign"));
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        layer.with_filter(Targets::new().with_target(countersign_server::SPANS, LevelFilter::DEBUG)).boxed()
    }

    /// Sends the last spans.
    pub(super) fn end(self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_WITHIN) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Sends from the processor's own thread, which has no reactor, with ours.
#[derive(Debug)]
struct OnRuntime {
    exporter: Otlp,
    runtime: Handle,
}

impl SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.runtime.block_on(self.exporter.export(batch))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
