//! The description of the API for programs, made from the table of routes.

use std::collections::BTreeMap;

use utoipa::openapi::path::{HttpMethod, Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder, Ref, RefOr,
    Required, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use countersign_api::wire::{Code, Problem};

use crate::routes;
use crate::table::Route;

const PROBLEM: &str = "application/problem+json";
/// A program's credential, and a browser's.
const BEARER: &str = "bearer";
const COOKIE: &str = "cookie";

/// The API as OpenAPI 3.1.
pub fn openapi() -> OpenApi {
    let mut components = ComponentsBuilder::new().schema(Problem::name(), Problem::schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of one role.")).build();
    let cookie = "A browser's session. Everything but GET also needs the header `x-countersign-csrf`.";
    let cookie = ApiKeyValue::with_description("countersign-session", cookie);
    components = components.security_scheme(BEARER, SecurityScheme::Http(bearer));
    components = components.security_scheme(COOKIE, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    let mut paths = PathsBuilder::new();
    for route in routes::table() {
        for (name, schema) in route.schemas.iter().filter(|(name, _)| name != "Page") {
            components = components.schema(name.clone(), schema.clone());
        }
        let path = route.path;
        paths = paths.path(path, PathItem::new(route.method.clone(), operation(route)));
    }
    let info = InfoBuilder::new().title("Countersign").version(env!("CARGO_PKG_VERSION"));
    let info = info.description(Some("Approvals for the tool calls of AI agents. See docs/reference/api.md."));
    OpenApiBuilder::new().info(info.build()).paths(paths.build()).components(Some(components.build())).build()
}

fn operation(route: Route) -> Operation {
    let Route { method, path, roles, mut operation, refuses, .. } = route;
    if !roles.is_empty() {
        operation = operation.security(SecurityRequirement::new(BEARER, Vec::<String>::new()));
        operation = operation.security(SecurityRequirement::new(COOKIE, Vec::<String>::new()));
    }
    let mut named = false;
    for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        operation = operation.parameter(parameter.schema(Some(String::schema())).build());
        named = true;
    }
    let mut operation = operation.build();
    let named_only = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Path,
        RefOr::Ref(_) => false,
    };
    let asks = !operation.parameters.iter().flatten().all(named_only);
    let mut codes = vec![Code::WrongHost, Code::WrongOrigin, Code::Internal, Code::Unavailable];
    codes.extend((!roles.is_empty()).then_some([Code::Unauthenticated, Code::Forbidden, Code::Limit]).iter().flatten());
    codes.extend((!roles.is_empty() && method != HttpMethod::Get).then_some(Code::WrongCsrf));
    codes.extend((asks || operation.request_body.is_some()).then_some(Code::BadRequest));
    codes.extend(operation.request_body.is_some().then_some([Code::TooLarge, Code::NotJson]).iter().flatten());
    codes.extend((method == HttpMethod::Delete).then_some(Code::NotJson));
    codes.extend(named.then_some(Code::NotFound));
    codes.extend(refuses);
    describe(&mut operation, &codes);
    operation
}

/// Adds an answer for each status that these problems have, with their codes.
fn describe(operation: &mut Operation, codes: &[Code]) {
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for code in codes {
        let named = by_status.entry(code.status()).or_default();
        let code = format!("`{code}`");
        if !named.contains(&code) {
            named.push(code);
        }
    }
    for (status, named) in by_status {
        let answer = ResponseBuilder::new().description(format!("A problem: {}.", named.join(", ")));
        let answer = RefOr::T(answer.content(PROBLEM, problem()).build());
        match operation.responses.responses.entry(status.to_string()).or_insert(answer) {
            // A route that has an answer of its own for it may give either.
            RefOr::T(response) => {
                response.content.entry(PROBLEM.to_owned()).or_insert_with(|| RefOr::T(problem()));
            }
            RefOr::Ref(_) => {}
        }
    }
}

fn problem() -> Content {
    ContentBuilder::new().schema(Some(RefOr::<Schema>::Ref(Ref::from_schema_name(Problem::name())))).build()
}
