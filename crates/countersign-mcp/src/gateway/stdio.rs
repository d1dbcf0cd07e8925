//! The two ends that a client on pipes gave us, waited for by the runtime itself.
//!
//! Tokio's own standard input and output hand each line over to a thread and back. Clients give pipes, and some of them
//! sockets; both can be waited for. What cannot, such as a terminal, still goes through a thread.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{FileType, fstat};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

/// What the client says comes out of here.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// What the client hears goes in here.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Where the client writes. Must be called inside a runtime.
///
/// It is set not to block, also for others who read from the very same end.
pub fn input(fd: OwnedFd) -> io::Result<Input> {
    Ok(match kind(&fd)? {
        FileType::Fifo => Box::new(Receiver::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(File::from_std(fd.into())),
    })
}

/// Where the client reads. Must be called inside a runtime.
pub fn output(fd: OwnedFd) -> io::Result<Output> {
    Ok(match kind(&fd)? {
        // Standard error may be the same end, and must go on blocking: so the pipe is opened once more. Where the system
        // has no such way, or the pipe is another user's, a thread has to do.
        FileType::Fifo => match OpenOptions::new().open_sender(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
            Ok(sender) => Box::new(sender),
            Err(_) => Box::new(File::from_std(fd.into())),
        },
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(File::from_std(fd.into())),
    })
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// Clients made by Node give sockets, each end one of its own.
fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{OFlags, fcntl_getfl};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// More than any pipe or socket holds, so that both sides have to wait.
    const BYTES: usize = 4 << 20;

    async fn all_goes_through(mut input: Input, mut output: Output) {
        let writing = tokio::spawn(async move {
            output.write_all(&vec![7; BYTES]).await.unwrap();
            output.flush().await.unwrap();
        });
        let mut read = vec![0; BYTES];
        input.read_exact(&mut read).await.unwrap();
        writing.await.unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
        assert_eq!(input.read(&mut read).await.unwrap(), 0);
    }

    fn blocks(fd: &impl std::os::fd::AsFd) -> bool {
        !fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
    }

    #[tokio::test]
    async fn pipes_carry_everything_and_their_end() {
        let (reader, writer) = io::pipe().unwrap();
        let shared = writer.try_clone().unwrap();
        let output = output(writer.into()).unwrap();
        assert!(blocks(&shared), "standard error may be the same end");
        drop(shared);
        all_goes_through(input(reader.into()).unwrap(), output).await;
    }

    #[tokio::test]
    async fn sockets_carry_everything_and_their_end() {
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        all_goes_through(input(reader.into()).unwrap(), output(writer.into()).unwrap()).await;
    }

    /// A client may have said everything and left before we begin.
    #[tokio::test]
    async fn what_was_said_before_is_read_and_so_is_the_end() {
        use std::io::Write as _;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"said").unwrap();
        drop(writer);
        let mut said = String::new();
        input(reader.into()).unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "said");
    }
}
