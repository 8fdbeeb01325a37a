//! The cryptography of `jsonwebtoken`, by ring, which this binary has for TLS anyway. It verifies, and signs nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self as known, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use ring::{error::Unspecified, hmac};
use signature::Verifier;

/// Makes ring the cryptography of this process. Once is enough.
pub(super) fn install() {
    // An error says that it is installed already.
    let _ = PROVIDER.install_default();
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(ByRing { algorithm: *algorithm, key: key.clone() }))
}

struct ByRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match self.algorithm {
            Algorithm::RS256 => self.rsa(&known::RSA_PKCS1_2048_8192_SHA256, message, signed),
            Algorithm::RS384 => self.rsa(&known::RSA_PKCS1_2048_8192_SHA384, message, signed),
            Algorithm::RS512 => self.rsa(&known::RSA_PKCS1_2048_8192_SHA512, message, signed),
            Algorithm::PS256 => self.rsa(&known::RSA_PSS_2048_8192_SHA256, message, signed),
            Algorithm::PS384 => self.rsa(&known::RSA_PSS_2048_8192_SHA384, message, signed),
            Algorithm::PS512 => self.rsa(&known::RSA_PSS_2048_8192_SHA512, message, signed),
            Algorithm::ES256 => self.ec(&known::ECDSA_P256_SHA256_FIXED, message, signed),
            Algorithm::ES384 => self.ec(&known::ECDSA_P384_SHA384_FIXED, message, signed),
            Algorithm::EdDSA => self.public_key(&known::ED25519, message, signed),
            Algorithm::HS256 => self.hmac(hmac::HMAC_SHA256, message, signed),
            Algorithm::HS384 => self.hmac(hmac::HMAC_SHA384, message, signed),
            Algorithm::HS512 => self.hmac(hmac::HMAC_SHA512, message, signed),
            _ => Err(Unspecified),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl ByRing {
    fn rsa(&self, by: &'static RsaParameters, message: &[u8], signed: &[u8]) -> Verified {
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(by, message, signed)
            }
            DecodingKeyKind::SecretOrDer(_) => self.public_key(by, message, signed),
        }
    }

    fn ec(
        &self,
        by: &'static EcdsaVerificationAlgorithm,
        message: &[u8],
        signed: &[u8],
    ) -> Verified {
        self.public_key(by, message, signed)
    }

    fn public_key(
        &self,
        by: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signed: &[u8],
    ) -> Verified {
        let key = self.key.try_get_as_bytes().map_err(|_| Unspecified)?;
        UnparsedPublicKey::new(by, key).verify(message, signed)
    }

    fn hmac(&self, by: hmac::Algorithm, message: &[u8], signed: &[u8]) -> Verified {
        let key = self.key.try_get_as_bytes().map_err(|_| Unspecified)?;
        hmac::verify(&hmac::Key::new(by, key), message, signed)
    }
}

type Verified = Result<(), Unspecified>;
