//! The signed statement that comes with a claim: checked before anything runs.

use countersign::digest::CallDigest;
use countersign::{CallId, GateError, signer};
use serde::Deserialize;

use crate::wire;

/// The only kind of statement that is understood.
const VERSION: u32 = 1;

/// What must be said of the call. Whatever else is covered by its digest, which the gate computes for itself.
#[derive(Deserialize)]
struct Statement {
    v: u32,
    call: CallId,
    digest: CallDigest,
    fence: u64,
}

/// Checks the receipt of a claim. Where a key is wanted, there must be one and it must be signed by that key.
///
/// SECURITY: without a key that was agreed on before, a signature says only that nobody between the server and us
/// changed what it covers.
pub(super) fn check(claimed: &wire::Claimed, wanted: Option<&str>) -> Result<(), GateError> {
    let refused = |why: &str| Err(GateError::Refused(format!("it handed over a call {why}")));
    let receipt = match (&claimed.receipt, wanted) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return refused("without the signed receipt that is wanted"),
        (Some(receipt), Some(wanted)) if receipt.key != wanted => {
            return refused("with a receipt of another key than the one that is wanted");
        }
        (Some(receipt), _) => receipt,
    };
    if !signer::verify(&receipt.key, &receipt.statement, &receipt.signature) {
        return refused("with a receipt whose signature is wrong");
    }
    let Ok(Statement { v: VERSION, call, digest, fence }) = serde_json::from_str(&receipt.statement) else {
        return refused("with a receipt that cannot be read");
    };
    match (call, digest, fence) == (claimed.call, claimed.digest, claimed.fence) {
        true => Ok(()),
        false => refused("with the receipt of another one"),
    }
}

#[cfg(test)]
mod tests {
    use countersign::signer::Signer;
    use serde_json::json;

    use super::*;

    fn digest(byte: &str) -> String {
        format!("cs1c:{}", byte.repeat(32))
    }

    /// A claim of the call 1 with the digest 11 and the fence 7.
    fn claimed() -> wire::Claimed {
        let at = "2026-01-02T03:04:05Z";
        let value = json!({
            "call": CallId::from_bytes([1; 16]), "arguments": {}, "digest": digest("11"), "fence": 7, "attempt": 1,
            "lease_until": at, "receipt": null, "claimed_at": at, "decision": null,
            "bound": {
                "principal": "bot", "requester": null, "session": null, "run": null, "thread": null, "agent": [],
                "tool": "pay", "server": null, "definition": null, "policy": "p1", "nonce": "0", "hold": null,
                "places": {}
            }
        });
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn signed(signer: &Signer, statement: &serde_json::Value) -> wire::Claimed {
        let statement = statement.to_string();
        let (signature, key) = (signer.sign(&statement), signer.public_key());
        wire::Claimed { receipt: Some(wire::Receipt { statement, key, signature }), ..claimed() }
    }

    fn stated() -> serde_json::Value {
        json!({ "v": 1, "call": CallId::from_bytes([1; 16]), "digest": digest("11"), "fence": 7, "approvers": ["ann"] })
    }

    #[test]
    fn a_receipt_must_be_signed_and_about_this_claim() {
        let signer = Signer::generate().unwrap();
        assert!(check(&claimed(), None).is_ok());
        assert!(check(&signed(&signer, &stated()), None).is_ok());
        for (member, other) in [
            ("v", json!(2)),
            ("call", json!(CallId::from_bytes([2; 16]))),
            ("digest", json!(digest("22"))),
            ("fence", json!(8)),
            ("fence", json!(null)),
        ] {
            let mut wrong = stated();
            wrong[member] = other;
            assert!(check(&signed(&signer, &wrong), None).is_err(), "{wrong}");
        }
        let mut forged = signed(&signer, &stated());
        if let Some(receipt) = &mut forged.receipt {
            receipt.statement = receipt.statement.replace("ann", "bob");
        }
        assert!(check(&forged, None).is_err(), "what was signed was changed");
    }

    #[test]
    fn where_a_key_is_wanted_no_other_and_no_missing_one_will_do() {
        let (signer, other) = (Signer::generate().unwrap(), Signer::generate().unwrap());
        let key = signer.public_key();
        assert!(check(&signed(&signer, &stated()), Some(&key)).is_ok());
        assert!(check(&signed(&other, &stated()), Some(&key)).is_err());
        assert!(check(&claimed(), Some(&key)).is_err());
    }
}
