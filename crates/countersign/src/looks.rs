//! Tools of different servers that a person may take for one another.
//!
//! Which tools there are of which look is kept in small records of the store, written when a tool is first seen: what
//! others look like a tool takes one reading, however many tools there are.

use sha2::{Digest as _, Sha256};
use unicode_security::skeleton;

use crate::call::ToolId;
use crate::digest::push_hex;
use crate::limits;
use crate::store::{Expect, Failure, Store, StoreError};

/// Where the tools of each look are kept among the store's records.
const LOOKS: &str = "tool-looks";

/// What a name looks like: names of one look differ only in case or in letters that are drawn the same.
pub fn look(name: &str) -> String {
    skeleton(&name.to_lowercase()).collect::<String>().to_lowercase()
}

/// The beginning of a key, of one length whatever the name is.
fn prefix(tool: &ToolId) -> String {
    let mut key = String::with_capacity(65);
    push_hex(&mut key, &Sha256::digest(look(&tool.name).as_bytes()));
    key.push('/');
    key
}

/// Notes that a server has a tool. Noting it again changes nothing; local tools are not noted.
pub async fn note(store: &dyn Store, tool: &ToolId) -> Result<(), StoreError> {
    let Some(server) = &tool.server else { return Ok(()) };
    // No server's name holds a slash.
    let key = format!("{}{server}/{}", prefix(tool), tool.name);
    match store.put_record(LOOKS, &key, b"", Expect::Absent, None).await {
        Ok(_) | Err(Failure::Rejected(_)) => Ok(()),
        Err(Failure::Store(error)) => Err(error),
    }
}

/// Other tools of servers that look like this one of a server, some of them where there are many.
pub(crate) async fn look_alikes(store: &dyn Store, tool: &ToolId) -> Result<Vec<ToolId>, StoreError> {
    if tool.server.is_none() {
        return Ok(Vec::new());
    }
    let prefix = prefix(tool);
    let found = store.records(LOOKS, &prefix, None, limits::LOOK_ALIKES + 1).await?;
    let read = |key: &str| key.strip_prefix(&prefix)?.split_once('/').map(|(server, name)| ToolId::on(server, name));
    let others = found.iter().filter_map(|record| read(&record.key)).filter(|other| other != tool);
    Ok(others.take(limits::LOOK_ALIKES).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn tools_of_one_look_know_one_another() {
        let store = MemoryStore::new();
        for (server, name) in [("files", "read_file"), ("evil", "reаd_file"), ("evil", "write"), ("other", "Read_File")]
        {
            note(&store, &ToolId::on(server, name)).await.unwrap();
            note(&store, &ToolId::on(server, name)).await.unwrap();
        }
        let mut found = look_alikes(&store, &ToolId::on("files", "read_file")).await.unwrap();
        found.sort();
        assert_eq!(found, [ToolId::on("evil", "reаd_file"), ToolId::on("other", "Read_File")]);
        assert_eq!(look_alikes(&store, &ToolId::on("evil", "write")).await.unwrap(), []);
        assert_eq!(look_alikes(&store, &ToolId::local("read_file")).await.unwrap(), []);
    }
}
