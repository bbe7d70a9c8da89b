//! A signed request that a service received, as it asks this service to check it. Its attributes are read when they are
//! needed, in Keystone's order, because that order decides which error a caller gets.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use kilonova_wire::time;
use serde_json::Value;

use super::{s3, signature};
use crate::Error;
use crate::app::Fields;

/// The kind of a signature.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// A request to an API of EC2's kind, such as that of CloudFormation.
    Ec2,
    /// A text to sign of S3.
    S3,
}

/// A signed request. No `Debug`, because its parameters are its sender's.
pub(crate) struct SignedRequest {
    /// The access key.
    pub access: String,
    form: Form,
    fields: Fields,
}

/// The names of the object in a body, in the order in which Keystone looks for them.
const NAMES: [&str; 3] = ["credentials", "credential", "ec2Credentials"];

impl SignedRequest {
    /// Reads a body.
    pub(crate) fn read(form: Form, body: Value) -> Result<Self, Error> {
        let mut body = match body {
            Value::Object(body) if !body.is_empty() => body,
            _ => return Err(Error::Invalid("request must include a request body".to_owned())),
        };
        let given = NAMES.into_iter().find(|name| body.get(*name).is_some_and(is_true));
        let fields = match given.and_then(|name| body.remove(name)) {
            None => Fields::new(),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(Error::Invalid("credentials must be an object.".to_owned())),
        };
        if !fields.contains_key("access") {
            return Err(Error::Unauthorized("the request has no access key"));
        }
        let access = string(&fields, "access")?.to_owned();
        Ok(Self { access, form, fields })
    }

    /// Checks the signature.
    pub(super) fn check_signature(&self, secret: &str) -> Result<(), Error> {
        let is_valid = match self.form {
            Form::Ec2 => signature::is_valid(&self.fields, secret)?,
            Form::S3 => s3::is_valid(&self.fields, secret)?,
        };
        if is_valid { Ok(()) } else { Err(Error::Unauthorized("the signature is wrong")) }
    }

    /// Refuses a request that was signed longer than `lifetime` ago. One without a time never ends, as in Keystone: its
    /// signer chose that.
    pub(super) fn check_time(&self, now: Timestamp, lifetime: SignedDuration) -> Result<(), Error> {
        let within = |object: &str, key: &str| self.fields.get(object)?.get(key);
        let places = [("params", "Timestamp"), ("headers", "X-Amz-Date"), ("params", "X-Amz-Date")];
        let mut times = places.into_iter().filter_map(|(object, key)| within(object, key));
        let Some(shown) = times.find(|shown| is_true(shown)) else { return Ok(()) };
        let Some(signed) = shown.as_str().and_then(time::parse) else {
            return Err(Error::Unauthorized("the time of the signature is not a time"));
        };
        match now > time::after(signed, lifetime) {
            true => Err(Error::Unauthorized("the signature has expired")),
            false => Ok(()),
        }
    }
}

/// True for a value that Python considers true.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// A text that must be there.
pub(super) fn string<'a>(fields: &'a Fields, key: &'static str) -> Result<&'a str, Error> {
    fields.get(key).and_then(Value::as_str).ok_or(Error::Missing(key, "credentials"))
}

/// An object that must be there.
pub(super) fn object<'a>(fields: &'a Fields, key: &'static str) -> Result<&'a Fields, Error> {
    fields.get(key).and_then(Value::as_object).ok_or(Error::Missing(key, "credentials"))
}

/// A parameter as Python writes it.
pub(super) fn written(value: &Value) -> Result<Cow<'_, str>, Error> {
    Ok(match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Number(number) => Cow::Owned(number.to_string()),
        Value::Bool(true) => Cow::Borrowed("True"),
        Value::Bool(false) => Cow::Borrowed("False"),
        Value::Null => Cow::Borrowed("None"),
        Value::Array(_) | Value::Object(_) => {
            return Err(Error::Invalid("The values of params must be strings.".to_owned()));
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(fields: &Value) -> SignedRequest {
        let mut fields = fields.clone();
        fields["access"] = json!("key");
        SignedRequest::read(Form::Ec2, json!({"credentials": fields})).expect("it has a key")
    }

    #[test]
    fn a_time_has_the_forms_of_the_signers_and_ends() {
        let now = time::parse("2026-11-29T12:15:00Z").expect("the time is valid");
        let quarter = SignedDuration::from_mins(15);
        for (fields, accepted) in [
            (json!({}), true),
            (json!({"params": {"Timestamp": ""}}), true),
            (json!({"params": {"Timestamp": "2026-11-29T12:00:00Z"}}), true),
            (json!({"params": {"Timestamp": "2026-11-29T12:00:00"}}), true),
            (json!({"params": {"Timestamp": "2026-11-29T12:00:00.000000Z"}}), true),
            (json!({"params": {"Timestamp": "2026-11-29T11:59:59Z"}}), false),
            (json!({"params": {"Timestamp": "2026-11-29T13:00:00+01:00"}}), true),
            (json!({"headers": {"X-Amz-Date": "20261129T120000Z"}}), true),
            (json!({"headers": {"X-Amz-Date": "20261129T115959Z"}}), false),
            (json!({"params": {"X-Amz-Date": "20261129T120000Z"}}), true),
            (json!({"params": {"X-Amz-Date": "20261129T115959Z"}}), false),
            (json!({"params": {"Timestamp": "2099-01-01T00:00:00Z"}}), true),
            (json!({"params": {"Timestamp": "soon"}}), false),
            (json!({"params": {"Timestamp": 7}}), false),
            (json!({"params": [], "headers": 7}), true),
            // The first time that is there counts.
            (
                json!({"params": {"Timestamp": "2026-11-29T11:00:00Z"},
                    "headers": {"X-Amz-Date": "20261129T120000Z"}}),
                false,
            ),
        ] {
            assert_eq!(request(&fields).check_time(now, quarter).is_ok(), accepted, "{fields}");
        }
    }
}
