//! The description of the API for programs, made from the table of routes.

use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder, Ref, RefOr, Required, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use countersign_api::wire::Problem;

use crate::routes;
use crate::table::Route;

/// The API as OpenAPI 3.1.
pub fn openapi() -> OpenApi {
    let mut components = ComponentsBuilder::new().schema(Problem::name(), Problem::schema());
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

fn operation(route: Route) -> utoipa::openapi::path::Operation {
    let mut operation = route.operation;
    for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        operation = operation.parameter(parameter.schema(Some(String::schema())).build());
    }
    let content = utoipa::openapi::ContentBuilder::new()
        .schema(Some(RefOr::<utoipa::openapi::Schema>::Ref(Ref::from_schema_name(Problem::name()))));
    let problem = ResponseBuilder::new().description("A problem.").content("application/problem+json", content.build());
    operation.response("default", problem.build()).build()
}
