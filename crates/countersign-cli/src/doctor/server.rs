//! The server: the address it would listen on, or one that is named.

use std::net::{SocketAddr, TcpListener};

use countersign_api::client::Client;

use super::{Finding, Health};
use crate::fault::{Exit, Fault};
use crate::settings::{Reach, Settings};

/// Where `serve` listens when nobody says otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7117);

/// Whether `serve` could listen, or is there already.
pub(super) async fn address(settings: &Settings) -> Finding {
    let address = match settings.config.listen.as_deref().map(str::parse::<SocketAddr>) {
        None => USUAL,
        Some(Ok(address)) => address,
        Some(Err(_)) => {
            let says = "`listen` in the configuration is not an address and a port";
            return Finding::fail("listen address", says, "write it as 127.0.0.1:7117");
        }
    };
    if !address.ip().is_loopback() {
        return Finding::warn(
            "listen address",
            format_args!("{address} can be reached from other machines, so `serve` starts there with TLS only"),
            "give it --tls-cert and --tls-key, or listen on 127.0.0.1",
        );
    }
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok("listen address", format_args!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => taken(address).await,
        Err(error) => Finding::fail(
            "listen address",
            format_args!("{address}: {error}"),
            "choose another with `countersign serve --listen ADDRESS` or `listen:` in the configuration",
        ),
    }
}

/// Whether it is one of ours that has the address.
async fn taken(address: SocketAddr) -> Finding {
    // SECURITY: no token is sent: whoever has the address may not be a server of ours.
    let answers = match client(&format!("http://{address}"), "") {
        Ok(client) => client.health().await.is_ok_and(|health| health.status == "ok"),
        Err(_) => false,
    };
    match answers {
        true => Finding::ok("listen address", format_args!("a countersign server answers on {address}")),
        false => Finding::fail(
            "listen address",
            format_args!("another program has {address}"),
            "end it, or choose another with `countersign serve --listen ADDRESS`",
        ),
    }
}

/// A server that was named: whether it answers, its store answers, and the token counts.
pub(super) async fn named(url: &str, reach: &Reach) -> Result<Vec<Finding>, Fault> {
    let anybody = client(url, "")?;
    let mut findings = Vec::new();
    match anybody.health().await.map_err(Fault::from) {
        Ok(_) => findings.push(Finding::ok("server", format_args!("{url} answers"))),
        Err(fault) => return Ok(vec![Finding::fault("server", &fault)]),
    }
    findings.push(match anybody.ready().await.map_err(Fault::from) {
        Ok(_) => Finding::ok("server's store", "answers"),
        Err(fault) => Finding::fault("server's store", &fault),
    });
    findings.push(match reach.client() {
        Err(fault) if fault.exit == Exit::Usage => Finding::warn(
            "token",
            "COUNTERSIGN_TOKEN has none, so nothing can be decided there",
            "`countersign token create --role approver --name NAME` makes one",
        ),
        Err(fault) => Finding::fault("token", &fault),
        Ok(None) => return Ok(findings),
        Ok(Some(client)) => token(&client).await,
    });
    Ok(findings)
}

async fn token(client: &Client) -> Finding {
    match client.me().await.map_err(Fault::from) {
        Err(fault) => Finding::fault("token", &fault),
        Ok(me) => {
            let roles: Vec<&str> = me.roles.iter().map(|role| role.as_str()).collect();
            let says = format!("{} of `{}`, until {}", roles.join(", "), me.name, me.expires_at);
            match me.halted {
                false => Finding::ok("token", says),
                true => Finding::new("token", Health::Warn, format_args!("{says}; claims are halted, nothing runs"))
                    .next("`countersign resume --url URL` lets calls go on"),
            }
        }
    }
}

fn client(url: &str, token: &str) -> Result<Client, Fault> {
    // The first HTTP client wants it; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Client::new(url, token)?)
}
