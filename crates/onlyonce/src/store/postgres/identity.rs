//! Which database and schema a connection leads to: an address may lead to another one tomorrow.

use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, Error};

use super::address::ServerAddress;
use super::connection::Connection;
use super::error::PostgresOpenError;
use super::schema::{Missing, ensure};
use super::server::json;
use crate::store::StoreIdentity;

/// What the last connection has found. Nothing if the server did not say, as some services do not. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LastIdentity(Arc<Mutex<Option<StoreIdentity>>>);

impl LastIdentity {
    pub(super) fn get(&self) -> Option<StoreIdentity> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, identity: Option<StoreIdentity>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

/// Makes the schema at `url` another store than the one that it was copied from: see [`PostgresStore::new_identity`].
pub(super) async fn renew(url: &str) -> Result<(), PostgresOpenError> {
    let address = ServerAddress::parse(url, None)?;
    let mut connection = Connection::open(&address, &[], None).await?;
    ensure(&mut connection.client, &address, Missing::Refuse).await?;
    let in_use = "SELECT count(*) FROM pg_stat_activity
                   WHERE application_name = 'onlyonce' AND datname = current_database() AND pid <> pg_backend_pid()";
    let failed = |error| address.failed(error);
    match connection.client.query_one_scalar(in_use, &[]).await.map_err(failed)? {
        0_i64 => {}
        sessions => return Err(PostgresOpenError::InUse(address.name.clone(), sessions)),
    }
    let sql = format!("UPDATE {}.meta SET generation = gen_random_uuid()", address.schema);
    connection.client.batch_execute(&sql).await.map_err(failed)
}

/// Of the tables in this schema (quoted). The generation alone is copied by a dump; the identifier of the cluster and the number of
/// the database are not, but by a copy of the whole disk: see `onlyonce migrate --new-identity`.
pub(super) async fn ask(client: &Client, schema: &str) -> Result<Option<StoreIdentity>, Error> {
    let sql = format!(
        "SELECT json_build_array(m.generation, s.system_identifier::text, d.oid::text, '{}')
           FROM {schema}.meta m, pg_control_system() s, pg_database d
          WHERE m.one = 1 AND d.datname = current_database()",
        schema.replace('\'', "''")
    );
    let found = match json(client, &sql).await {
        Err(error) if error.code().is_some() => return Ok(None),
        found => found?,
    };
    Ok((!found.is_null()).then(|| {
        let digest = Sha256::new_with_prefix(b"onlyonce store 1\0").chain_update(found.to_string());
        let mut identity = [0; 16];
        identity.copy_from_slice(&digest.finalize()[..16]);
        StoreIdentity::from_bytes(identity)
    }))
}
