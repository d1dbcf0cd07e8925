//! The one table of routes: method, path, who may, what goes in and out. Router, OpenAPI and the authorisation tests
//! are all made from it, so a route that is not in it does not exist.

use axum::routing::MethodRouter;
use countersign_api::wire::{Code, Page, Role};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema};
use utoipa::openapi::{ContentBuilder, RefOr, Required};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;

/// One route.
pub(crate) struct Route {
    pub(crate) method: HttpMethod,
    pub(crate) path: &'static str,
    /// Who may; nobody in particular, if none: it needs no credential.
    pub(crate) roles: &'static [Role],
    pub(crate) handler: MethodRouter<App>,
    pub(crate) operation: OperationBuilder,
    /// The schemas that the operation refers to.
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
    /// Why it may refuse a request of somebody who may, and that is well formed.
    pub(crate) refuses: Vec<Code>,
}

/// A route as others may look at it: who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// `GET`, `POST` or `DELETE`.
    pub method: &'static str,
    /// The path, with `{id}` where an id stands.
    pub path: &'static str,
    /// The roles it serves; none where it needs no credential.
    pub roles: &'static [Role],
}

impl From<&Route> for Row {
    fn from(route: &Route) -> Row {
        let method = match route.method {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Delete => "DELETE",
            _ => "OTHER",
        };
        Row { method, path: route.path, roles: route.roles }
    }
}

/// Every route of the server, and who may use it.
pub fn table() -> Vec<Row> {
    crate::routes::table().iter().map(Row::from).collect()
}

/// A route that reads.
pub(crate) fn get(path: &'static str, roles: &'static [Role], handler: MethodRouter<App>, says: &str) -> Route {
    route(HttpMethod::Get, path, roles, handler, says)
}

/// A route that changes something.
pub(crate) fn post(path: &'static str, roles: &'static [Role], handler: MethodRouter<App>, says: &str) -> Route {
    route(HttpMethod::Post, path, roles, handler, says)
}

/// A route that ends something.
pub(crate) fn delete(path: &'static str, roles: &'static [Role], handler: MethodRouter<App>, says: &str) -> Route {
    route(HttpMethod::Delete, path, roles, handler, says)
}

fn route(
    method: HttpMethod,
    path: &'static str,
    roles: &'static [Role],
    handler: MethodRouter<App>,
    says: &str,
) -> Route {
    let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    let who =
        if names.is_empty() { "Needs no credential.".to_owned() } else { format!("Roles: {}.", names.join(", ")) };
    let operation = OperationBuilder::new().summary(Some(says)).description(Some(who));
    Route { method, path, roles, handler, operation, schemas: Vec::new(), refuses: Vec::new() }
}

impl Route {
    /// Says what its body is.
    pub(crate) fn takes<T: ToSchema>(mut self) -> Route {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).build();
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True));
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// Says that its body is an empty object: whoever changes something sends JSON, so that no foreign form can.
    pub(crate) fn takes_nothing(mut self) -> Route {
        let content = ContentBuilder::new().schema(Some(ObjectBuilder::new().build())).build();
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True));
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// Says what it answers.
    pub(crate) fn answers<T: ToSchema>(mut self, status: &str) -> Route {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).build();
        let response = ResponseBuilder::new().description("Done.").content("application/json", content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// Says that it answers pages of these.
    pub(crate) fn lists<T: ToSchema>(mut self) -> Route {
        let RefOr::Ref(item) = self.refer::<T>() else { return self };
        // Every page has its own name: what a list holds is the point of it.
        let name = format!("PageOf{}", T::name());
        let mut page = <Page<T> as PartialSchema>::schema();
        if let RefOr::T(Schema::Object(object)) = &mut page {
            let items = ArrayBuilder::new().items(RefOr::<Schema>::Ref(item));
            object.properties.insert("items".to_owned(), RefOr::T(Schema::Array(items.build())));
        }
        self.schemas.push((name.clone(), page));
        let schema = RefOr::<Schema>::Ref(utoipa::openapi::Ref::from_schema_name(name));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description("One page.").content("application/json", content);
        self.operation = self.operation.response("200", response.build());
        self.query(&["after", "limit"])
    }

    /// Says why it may refuse, beside what every route of its kind refuses.
    pub(crate) fn refuses(mut self, codes: &[Code]) -> Route {
        self.refuses.extend(codes);
        self
    }

    /// Says that a reader who was cut off goes on by a header.
    pub(crate) fn resumes(mut self) -> Route {
        let parameter = ParameterBuilder::new().name("Last-Event-ID").parameter_in(ParameterIn::Header);
        let parameter = parameter.required(Required::False).schema(Some(String::schema()));
        self.operation = self.operation.parameter(parameter.build());
        self
    }

    /// Says which parameters its query may have.
    pub(crate) fn query(mut self, names: &[&str]) -> Route {
        for name in names {
            let parameter = ParameterBuilder::new().name(*name).parameter_in(ParameterIn::Query);
            let schema = match *name {
                "limit" | "wait" | "hours" => u32::schema(),
                "all" => bool::schema(),
                _ => String::schema(),
            };
            let parameter = parameter.required(Required::False).schema(Some(schema));
            self.operation = self.operation.parameter(parameter.build());
        }
        self
    }

    /// Says that it answers something that is no JSON of ours.
    pub(crate) fn streams(mut self, status: &str, kind: &str) -> Route {
        let response = ResponseBuilder::new().description(kind);
        self.operation = self.operation.response(status, response.build());
        self
    }

    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        T::schemas(&mut self.schemas);
        let name = T::name().into_owned();
        self.schemas.push((name.clone(), <T as PartialSchema>::schema()));
        RefOr::Ref(utoipa::openapi::Ref::from_schema_name(name))
    }
}
