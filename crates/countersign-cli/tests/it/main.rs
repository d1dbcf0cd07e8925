//! The command as scripts and people use it: the real binary, real files, a real terminal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod audit;
mod bed;
#[cfg(unix)]
mod cluster;
mod demo;
#[cfg(unix)]
mod demo_inbox;
#[cfg(unix)]
mod doctor;
mod faults;
mod fetch;
#[cfg(unix)]
mod gateway;
#[cfg(unix)]
mod gateway_bytes;
#[cfg(unix)]
mod gateway_callers;
#[cfg(unix)]
mod gateway_cuts;
mod gateway_eras;
#[cfg(unix)]
mod gateway_http;
#[cfg(unix)]
mod gateway_install;
#[cfg(unix)]
mod gateway_more;
#[cfg(unix)]
mod gateway_peer;
#[cfg(unix)]
mod gateway_pins;
#[cfg(unix)]
mod gateway_prompt;
#[cfg(unix)]
mod gateway_prompt_http;
#[cfg(unix)]
mod gateway_real;
#[cfg(unix)]
mod gateway_real_http;
#[cfg(unix)]
mod gateway_status;
#[cfg(unix)]
mod gateway_suite;
#[cfg(unix)]
mod gateway_tasks;
#[cfg(unix)]
mod gateway_web;
#[cfg(unix)]
mod inbox;
#[cfg(unix)]
mod log;
mod mcp;
mod notify;
mod operate;
mod policy;
#[cfg(unix)]
mod remote;
mod run;
#[cfg(unix)]
mod run_model;
mod run_remote;
#[cfg(unix)]
mod run_terminal;
#[cfg(unix)]
mod screen;
#[cfg(unix)]
mod serve;
mod serve_agents;
#[cfg(unix)]
mod surfaces;
#[cfg(unix)]
mod terminal;
#[cfg(target_os = "linux")]
mod tools_as;
mod trust;
