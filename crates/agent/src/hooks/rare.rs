//! Recording for entry points that few programs call often: one copy of the code
//! for all of them, reached by a call, so that the agent stays small.

use highwater_event::api::ApiKind;

use crate::record::{self, Caller};

/// [`record::alloc`]
#[inline(never)]
pub fn alloc(caller: Caller, ptr: u64, size: u64, api: ApiKind) {
    record::alloc(caller, ptr, size, api);
}

/// [`record::free`]
#[inline(never)]
pub fn free(caller: Caller, ptr: u64, api: ApiKind) {
    record::free(caller, ptr, api);
}

/// [`record::alloc_around`]
pub fn alloc_around(caller: Caller, size: u64, api: ApiKind, mut real: impl FnMut() -> u64) -> u64 {
    alloc_around_any(caller, size, api, &mut real)
}

#[inline(never)]
fn alloc_around_any(caller: Caller, size: u64, api: ApiKind, real: &mut dyn FnMut() -> u64) -> u64 {
    record::alloc_around(caller, size, api, real)
}

/// [`record::free_around`]
pub fn free_around(caller: Caller, ptr: u64, api: ApiKind, mut real: impl FnMut()) {
    free_around_any(caller, ptr, api, &mut real);
}

#[inline(never)]
fn free_around_any(caller: Caller, ptr: u64, api: ApiKind, real: &mut dyn FnMut()) {
    record::free_around(caller, ptr, api, real);
}

/// [`record::realloc`]
pub fn realloc(
    caller: Caller,
    old: u64,
    size: u64,
    free_api: ApiKind,
    alloc_api: ApiKind,
    mut real: impl FnMut() -> u64,
) -> u64 {
    realloc_any(caller, old, size, free_api, alloc_api, &mut real)
}

#[inline(never)]
fn realloc_any(
    caller: Caller,
    old: u64,
    size: u64,
    free_api: ApiKind,
    alloc_api: ApiKind,
    real: &mut dyn FnMut() -> u64,
) -> u64 {
    record::realloc(caller, old, size, free_api, alloc_api, real)
}
