//! Letters, by SMTP to the server the operator named.

use std::net::SocketAddr;

use countersign::config::{EmailConfig, SmtpTls};
use countersign::reach::Reach;
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};

use super::notice::Notice;
use super::{NotifyError, Undelivered};
use crate::limits;

/// Writes letters.
pub(super) struct Letters {
    config: EmailConfig,
    reach: Reach,
    from: Mailbox,
    to: Vec<Mailbox>,
    tls: Tls,
}

impl Letters {
    /// A way to the mail server. Nothing is connected yet.
    pub(super) fn new(config: EmailConfig, reach: Reach) -> Result<Letters, NotifyError> {
        let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|_| NotifyError::BadMailbox(text.to_owned()));
        let parameters = || TlsParameters::new(config.host.clone()).map_err(|_| NotifyError::NoProvider);
        let tls = match config.tls {
            SmtpTls::StartTls => Tls::Required(parameters()?),
            SmtpTls::Tls => Tls::Wrapper(parameters()?),
            SmtpTls::None => Tls::None,
        };
        reach.check_literal(&config.host)?;
        let from = mailbox(&config.from)?;
        let to = config.to.iter().map(|to| mailbox(to)).collect::<Result<_, _>>()?;
        Ok(Letters { config, reach, from, to, tls })
    }

    /// Who gets them, for people.
    pub(super) fn to(&self) -> String {
        self.config.to.join(", ")
    }

    /// Sends one letter; its id lets mail programs know it again.
    pub(super) async fn send(&self, id: &str, notice: &Notice) -> Result<u16, Undelivered> {
        let late = || Undelivered::later(format!("no answer within {} s", limits::TELL_WITHIN.as_secs()));
        tokio::time::timeout(limits::TELL_WITHIN, self.post(id, notice)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn post(&self, id: &str, notice: &Notice) -> Result<u16, Undelivered> {
        let letter = self.letter(id, notice).map_err(|error| Undelivered {
            problem: format!("the letter cannot be written: {error}"),
            status: None,
            again: None,
        })?;
        let address = self.look_up().await?;
        // SECURITY: connected to what was checked; the certificate is still the named host's.
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address.ip().to_string())
            .port(self.config.port)
            .tls(self.tls.clone())
            .timeout(Some(limits::TELL_WITHIN));
        if let (Some(username), Some(password)) = (&self.config.username, &self.config.password) {
            let password = password.reveal().to_owned();
            transport = transport.credentials(Credentials::new(username.clone(), password));
        }
        let answer = transport.build().send(letter).await.map_err(|error| refused(&error))?;
        Ok(answer.code().into())
    }

    async fn look_up(&self) -> Result<SocketAddr, Undelivered> {
        let host = (self.config.host.as_str(), self.config.port);
        let lost = |_| Undelivered::later("the mail server's name cannot be looked up".to_owned());
        let found: Vec<SocketAddr> = tokio::net::lookup_host(host).await.map_err(lost)?.collect();
        let forbidden = |forbidden: countersign::reach::Forbidden| Undelivered::later(forbidden.to_string());
        self.reach.check(&self.config.host, found.iter().map(SocketAddr::ip)).map_err(forbidden)?;
        found.first().copied().ok_or_else(|| Undelivered::later("the mail server has no address".to_owned()))
    }

    fn letter(&self, id: &str, notice: &Notice) -> Result<Message, lettre::error::Error> {
        let mut letter = Message::builder()
            .from(self.from.clone())
            .subject(format!("Countersign: {}", notice.title()))
            .message_id(Some(format!("<{id}@countersign.invalid>")))
            .header(ContentType::TEXT_PLAIN);
        for to in &self.to {
            letter = letter.to(to.clone());
        }
        let lines = notice.lines().join("\n");
        letter.body(format!("{}\n\n{lines}\n\nLook and decide here: {}\n", notice.title(), notice.data.url))
    }
}

/// What went wrong, without the words of the server: they are anybody's.
fn refused(error: &Error) -> Undelivered {
    let status = error.status().map(u16::from);
    let problem = match status {
        Some(status) => format!("the mail server answered {status}"),
        None if error.is_timeout() => "the mail server did not answer in time".to_owned(),
        None if error.is_tls() => "the mail server and we do not agree on TLS".to_owned(),
        None => "the mail server cannot be reached, or spoke no SMTP".to_owned(),
    };
    let again = (!error.is_permanent()).then_some(std::time::Duration::ZERO);
    Undelivered { problem, status, again }
}
