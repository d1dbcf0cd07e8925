//! Everything that is answered, and what is done around each answer.

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use countersign_api::wire::Code;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tracing::Instrument as _;

use crate::app::App;
use crate::auth::guard;
use crate::auth::refusals::Stranger;
use crate::metrics::Counting;
use crate::problem::Refused;
use crate::{dialects, headers, limits, routes, ui};

/// Routes behind the checks that bind all of them.
pub(crate) struct Site {
    router: TowerToHyperService<Router>,
    /// The same routes by their paths, to count by: the router tells them only to what stands inside of it.
    paths: matchit::Router<&'static str>,
    app: App,
}

impl Site {
    /// Every route of the table.
    pub(crate) fn whole(app: App) -> Site {
        let routes = routes::table().into_iter().map(|route| (route.path, route.handler));
        Site::of(routes, Router::new().fallback(axum::routing::get(ui::serve)), app)
    }

    /// The door to one MCP server.
    pub(crate) fn gateway(app: App) -> Site {
        let fallback = Router::new().fallback(async || Refused::not_found());
        Site::of(dialects::mcp::lone(), fallback, app)
    }

    fn of(
        routes: impl IntoIterator<Item = (&'static str, MethodRouter<App>)>,
        mut router: Router<App>,
        app: App,
    ) -> Site {
        let mut paths = matchit::Router::new();
        for (path, handler) in routes {
            // One path may have several methods, each a route of its own.
            let _ = paths.insert(path, path);
            router = router.route(path, handler);
        }
        let router = router.method_not_allowed_fallback(async || Refused::new(Code::MethodNotAllowed));
        Site { router: TowerToHyperService::new(router.with_state(app.clone())), paths, app }
    }

    /// Answers a request. What is done around every one of them is done here, and in no layers: each would cost a busy
    /// server its share.
    pub(crate) async fn answer(&self, mut request: Request) -> Response {
        let app = &self.app;
        let route = self.paths.at(request.uri().path()).ok().map(|found| *found.value);
        let is_head = *request.method() == Method::HEAD;
        let (counting, stranger) = (Counting::begin(&request, route), Stranger::of(&request));
        let mut response = match guard::check(app, &request) {
            Ok(()) => {
                DefaultBodyLimit::max(limits::BODY_BYTES).apply(&mut request);
                let Ok(response) = self.router.call(request).instrument(counting.span()).await;
                response
            }
            Err(refused) if is_head => without_body(refused.into_response()),
            Err(refused) => refused.into_response(),
        };
        let code = response.extensions().get::<Code>().copied();
        stranger.sent_away(app, code).await;
        headers::add(response.headers_mut());
        counting.end(&app.metrics, response.status());
        response
    }
}

/// What HEAD is answered with: all but the body. The router does the same for what comes from it.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::empty();
    response
}
