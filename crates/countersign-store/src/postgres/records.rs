//! Records: one statement each, so that comparing and setting is one step.

use std::time::Duration;

use countersign::store::{Expect, Failure, Record, StoreError};
use countersign::time::Time;
use countersign::transition::Rejection;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row};

use super::rows::{count, failed, number};

/// The database's moment; `$1` is the offset tests move it by.
macro_rules! at_present {
    ($($sql:literal),*) => {
        concat!(
            "WITH present AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $1::bigint AS now) ",
            $($sql),*
        )
    };
}

fn record(row: &PgRow) -> Result<Record, StoreError> {
    let read = || -> Result<Record, sqlx::Error> {
        Ok(Record {
            key: row.try_get("key")?,
            value: row.try_get("value")?,
            version: count(row.try_get("version")?),
            expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Time),
        })
    };
    read().map_err(failed)
}

pub(super) async fn get(pool: &PgPool, offset: i64, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
    const SQL: &str = at_present!(
        "SELECT key, value, version, expires_at FROM records, present
         WHERE namespace = $2 AND key = $3 AND (expires_at IS NULL OR expires_at > now)"
    );
    let row = sqlx::query(SQL).bind(offset).bind(namespace).bind(key).fetch_optional(pool).await.map_err(failed)?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn list(
    pool: &PgPool,
    offset: i64,
    namespace: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    const SQL: &str = at_present!(
        "SELECT key, value, version, expires_at FROM records, present
         WHERE namespace = $2 AND key >= $3 AND ($4::text IS NULL OR key < $4) AND ($5::text IS NULL OR key > $5)
           AND (expires_at IS NULL OR expires_at > now)
         ORDER BY key LIMIT $6"
    );
    let from = after.filter(|after| *after >= prefix).unwrap_or(prefix);
    let query = sqlx::query(SQL).bind(offset).bind(namespace).bind(from).bind(end_of(prefix)).bind(after);
    let rows = query.bind(number(limit as u64)).fetch_all(pool).await.map_err(failed)?;
    rows.iter().map(record).collect()
}

/// The least text greater than every text that begins with this prefix; none where there is no such text.
fn end_of(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        // Bytes of UTF-8 sort as their characters do; the gap of the surrogates is stepped over.
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

const PUT_ANY: &str = at_present!(
    "INSERT INTO records (namespace, key, value, version, expires_at)
     SELECT $2, $3, $4, 1, now + $5 FROM present
     ON CONFLICT (namespace, key) DO UPDATE
     SET value = excluded.value, expires_at = excluded.expires_at,
         version = CASE WHEN records.expires_at <= (SELECT now FROM present) THEN 1 ELSE records.version + 1 END
     RETURNING version"
);

const PUT_NEW: &str = at_present!(
    "INSERT INTO records (namespace, key, value, version, expires_at)
     SELECT $2, $3, $4, 1, now + $5 FROM present
     ON CONFLICT (namespace, key) DO UPDATE
     SET value = excluded.value, expires_at = excluded.expires_at, version = 1
     WHERE records.expires_at <= (SELECT now FROM present)
     RETURNING version"
);

const PUT_OVER: &str = at_present!(
    "UPDATE records SET value = $4, expires_at = now + $5, version = version + 1 FROM present
     WHERE namespace = $2 AND key = $3 AND version = $6 AND (expires_at IS NULL OR expires_at > now)
     RETURNING version"
);

pub(super) async fn put(
    pool: &PgPool,
    offset: i64,
    (namespace, key): (&str, &str),
    value: &[u8],
    expect: Expect,
    life: Option<Duration>,
) -> Result<u64, Failure> {
    let sql = match expect {
        Expect::Any => PUT_ANY,
        Expect::Absent => PUT_NEW,
        Expect::Version(_) => PUT_OVER,
    };
    // Half of the largest number: adding the present to it stays in range.
    let life = life.map(|life| i64::try_from(life.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 2));
    let query = sqlx::query(sql).bind(offset).bind(namespace).bind(key).bind(value).bind(life);
    let query = match expect {
        Expect::Version(version) => query.bind(number(version)),
        Expect::Any | Expect::Absent => query,
    };
    let row = query.fetch_optional(pool).await.map_err(failed)?.ok_or(Rejection::Conflict)?;
    Ok(count(row.try_get("version").map_err(failed)?))
}

const DELETE_ANY: &str = "DELETE FROM records WHERE namespace = $2 AND key = $3 AND $1::bigint IS NOT NULL";

/// Fails where a live record is there, and clears away a dead one.
const DELETE_NONE: &str = at_present!(
    ", gone AS (DELETE FROM records USING present WHERE namespace = $2 AND key = $3 AND expires_at <= now)
     SELECT 1 FROM records, present WHERE namespace = $2 AND key = $3 AND (expires_at IS NULL OR expires_at > now)"
);

const DELETE_VERSION: &str = at_present!(
    "DELETE FROM records USING present
     WHERE namespace = $2 AND key = $3 AND version = $4 AND (expires_at IS NULL OR expires_at > now)"
);

pub(super) async fn delete(
    pool: &PgPool,
    offset: i64,
    namespace: &str,
    key: &str,
    expect: Expect,
) -> Result<(), Failure> {
    let sql = match expect {
        Expect::Any => DELETE_ANY,
        Expect::Absent => DELETE_NONE,
        Expect::Version(_) => DELETE_VERSION,
    };
    let query = sqlx::query(sql).bind(offset).bind(namespace).bind(key);
    let query = match expect {
        Expect::Version(version) => query.bind(number(version)),
        Expect::Any | Expect::Absent => query,
    };
    let touched = query.execute(pool).await.map_err(failed)?.rows_affected();
    let fits = match expect {
        Expect::Any => true,
        Expect::Absent => touched == 0,
        Expect::Version(_) => touched == 1,
    };
    if fits { Ok(()) } else { Err(Rejection::Conflict.into()) }
}

/// Removes records whose time is over. Reads never show them; this only gives back the room.
pub(super) async fn sweep(pool: &PgPool, offset: i64) -> Result<(), StoreError> {
    const SQL: &str = at_present!("DELETE FROM records USING present WHERE expires_at <= now");
    sqlx::query(SQL).bind(offset).execute(pool).await.map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::end_of;

    /// A prefix scan ends where its texts end, whatever characters they hold.
    #[test]
    fn the_end_of_a_prefix_is_above_all_its_texts_and_below_the_next() {
        assert_eq!(end_of("a/").as_deref(), Some("a0"));
        assert_eq!(end_of("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(end_of("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end_of("\u{10ffff}"), None);
        assert_eq!(end_of(""), None);
    }
}
