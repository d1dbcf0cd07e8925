//! Looks names up for whatever speaks HTTP to addresses that others name.

use std::net::SocketAddr;

use countersign::reach::Reach;
use futures::FutureExt as _;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up and hands over only addresses that were checked.
///
/// SECURITY: the connection is made to what this returns. A name is not looked up again between the check and the
/// connection, so a server that answers differently the second time gains nothing.
#[derive(Clone, Debug)]
pub struct Checked(pub Reach);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        let host = name.as_str().to_owned();
        async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            reach.check(&host, found.iter().map(SocketAddr::ip))?;
            Ok(Box::new(found.into_iter()) as Addrs)
        }
        .boxed()
    }
}
