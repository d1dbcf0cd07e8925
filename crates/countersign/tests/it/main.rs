//! Tests of the library from outside: one binary, a module for each part.

mod policy;
