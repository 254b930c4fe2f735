//! The fields of kubelet's messages that a driver needs, with kubelet's numbers.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Claim {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    #[prost(string, tag = "2")]
    pub pool_name: String,
    #[prost(string, tag = "3")]
    pub device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Prepared {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Prepared>,
    /// What a later version of the API may have.
    #[prost(string, tag = "31")]
    pub later: String,
}

/// google.rpc.Status; its details are any message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refusal {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub details: Vec<Vec<u8>>,
}
